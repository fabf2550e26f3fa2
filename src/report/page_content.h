// The data of the HTML page, as JSON. Actions, memory and the critical path are columns of
// integers, most of them differences from the previous entry, so that regular timelines are small:
//
//   lanes[]     home     stage that determines the lane's colour
//               kind     position in kinds
//               stage    minus that of the lane's previous action
//               index    micro-batch or bucket
//               row      row within the stream
//               start    minus that of the lane's previous action, ns
//               length   minus that of the lane's previous action of the same kind, ns
//               bytes    minus those of the lane's previous action of the same kind
//   memory[]    time, held   minus those of the previous point, ns and bytes
//   path        segment by segment: lane, position in its columns, begin and end in ns; lane and
//               position are -1 for an unexplained segment
#pragma once

#include <string>

#include "dapple/report/page.h"

namespace dapple::report {

/// Returns JSON without the characters <, > and &, so that it can be embedded in a script element.
std::string page_content(const ReportSubject& subject);

}  // namespace dapple::report
