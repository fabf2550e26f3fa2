// What the page is told about a plan, as JSON. Columns of integers, most of them differences to
// what stands before, so that regular timelines are small:
//
//   lanes[]     home     stage that it is coloured after
//               kind     position in kinds
//               stage    less that of the lane's previous action
//               index    micro-batch or bucket
//               row      in its stream
//               start    less that of the lane's previous action, ns
//               length   less that of the lane's previous action of that kind, ns
//               bytes    likewise
//   memory[]    time, held   less those of the previous point, ns and bytes
//   path        lane, place in its columns, begin and end in ns, segment by segment; -1, -1 for a
//               segment that nothing explains
#pragma once

#include <string>

#include "dapple/report/page.h"

namespace dapple::report {

/// JSON without any of the characters <, > and &, so that it may stand in a script element.
std::string page_content(const ReportSubject& subject);

}  // namespace dapple::report
