// Debian's archive of Boost.JSON is not made for shared libraries: this is all of it.
#include <boost/json/src.hpp>
