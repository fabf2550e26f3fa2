#include "dapple/plan/trade_off.h"

#include "dapple/core/error.h"

namespace dapple {

std::string_view to_string(Against against) {
  switch (against) {
    case Against::Price:
      return "price";
    case Against::Memory:
      return "memory";
  }
  throw Bug("what a trade-off is against has no name");
}

std::string_view to_string(Objective objective) {
  switch (objective) {
    case Objective::Time:
      return "time";
    case Objective::Cost:
      return "cost";
  }
  throw Bug("an objective has no name");
}

}  // namespace dapple
