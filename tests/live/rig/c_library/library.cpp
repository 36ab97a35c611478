// A library whose exceptions another object catches.
#include <new>
#include <stdexcept>
#include <string>

extern "C" void thrower(int what) {
  if (what == 0) throw std::runtime_error("of the library, " + std::to_string(what));
  if (what == 1) throw std::bad_alloc();
  throw 3L;
}
