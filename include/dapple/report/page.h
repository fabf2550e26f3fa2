// A plan and its timeline as drawings: a page for a browser, and a figure for a paper.
#pragma once

#include <string>
#include <string_view>

#include "dapple/plan/document.h"
#include "dapple/timeline/timeline.h"
#include "dapple/topology/topology.h"

namespace dapple::report {

/// What is drawn. The timeline is one of the document's plan, predicted or measured; `topology` is
/// the document's own.
struct ReportSubject {
  const PlanDocument& document;
  const Timeline& timeline;
  const Topology& topology;
};

/// One HTML file that needs nothing else and asks for nothing: headline figures, the timeline to
/// zoom into, memory of every device and bytes in flight over time, idle time by cause, stages,
/// baselines with what they lose by, the devices coloured by stage. Texts from files appear as text
/// only, whatever they hold. Some 20 bytes per action and 17 per change of memory.
/// O(actions * devices). Requires: `document.plan` is valid and has a prediction.
std::string write_page(const ReportSubject& subject);

/// The timeline as an SVG figure, 720 units wide, text of 9 units: a row per lane with its stage,
/// computations above, what it sends and reduces below as thin bars; an axis with its unit and a
/// legend. More than 32 lanes share a height of 500 units and show computations alone. Boxes
/// narrower than half a unit are drawn where no other is yet. Kinds of work differ in lightness, so
/// that print and colour-blind readers lose nothing. O(actions). Same requirement.
std::string write_figure(const ReportSubject& subject);

/// `text` as text or attribute value of HTML or XML: without control characters, and with &, <, >
/// and quotes as references. O(length).
std::string escape_markup(std::string_view text);

}  // namespace dapple::report
