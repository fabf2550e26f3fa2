// Draws a plan and its timeline: as an HTML page and as an SVG figure for a paper.
#pragma once

#include <string>
#include <string_view>

#include "dapple/plan/document.h"
#include "dapple/timeline/timeline.h"
#include "dapple/topology/topology.h"

namespace dapple::report {

/// The plan to draw.
struct ReportSubject {
  const PlanDocument& document;
  /// A predicted or measured timeline of the document's plan.
  const Timeline& timeline;
  /// The topology of the document.
  const Topology& topology;
};

/// Returns a self-contained HTML file that loads nothing else: headline figures, a timeline that
/// can be zoomed, the memory of every device and the bytes in flight over time, idle time by cause,
/// stages, baselines with the causes for which they lose, and the devices coloured by stage. Texts
/// from input files are escaped, so that they appear as plain text. The size is some 20 bytes per
/// action and 17 per change of memory. O(actions * devices). Requires: `document.plan` is valid and
/// has a prediction.
std::string write_page(const ReportSubject& subject);

/// Returns the timeline as an SVG figure, 720 units wide with text of 9 units: a row per lane, with
/// its stages, computations above and sends and reductions below as thin bars, an axis with its
/// unit, and a legend. More than 32 lanes share a height of 500 units and show computations only. A
/// box narrower than half a unit is drawn only where there is no other box yet. Kinds of work
/// differ in lightness, so that they can be told apart in print and by colour-blind readers.
/// O(actions). Requires: as write_page().
std::string write_figure(const ReportSubject& subject);

/// Returns `text` for use as text or attribute value in HTML or XML: printable()
/// (core/characters.h), with character references in place of &, <, > and quotes. O(length).
std::string escape_markup(std::string_view text);

}  // namespace dapple::report
