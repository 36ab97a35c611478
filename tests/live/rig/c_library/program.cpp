// What C++ programs ask of a C library through their own: exceptions, threads, storage of threads, locales.
#include <chrono>
#include <clocale>
#include <cstdio>
#include <cxxabi.h>
#include <dlfcn.h>
#include <filesystem>
#include <future>
#include <iostream>
#include <locale>
#include <mutex>
#include <random>
#include <regex>
#include <shared_mutex>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <typeinfo>
#include <vector>

struct Told {
  ~Told() { gone++; }
  static inline int gone = 0;
};
thread_local Told told;
thread_local std::string name = "unnamed";

int main() {
  void *library = dlopen("/opt/c_library/library-cxx.so", RTLD_NOW);
  if (!library) { std::puts(dlerror()); return 1; }
  auto thrower = reinterpret_cast<void (*)(int)>(dlsym(library, "thrower"));
  for (int what = 0; what < 3; what++) {
    try { thrower(what); }
    catch (const std::runtime_error &error) { std::cout << "caught: " << error.what() << "\n"; }
    catch (const std::bad_alloc &) { std::cout << "caught: bad_alloc\n"; }
    catch (...) { std::cout << "caught: " << abi::__cxa_current_exception_type()->name() << "\n"; }
  }
  std::vector<std::thread> threads;
  std::shared_mutex lock;
  int sum = 0;
  for (int i = 0; i < 8; i++)
    threads.emplace_back([&, i] {
      name = std::to_string(i);
      (void)&told;
      try { thrower(0); } catch (const std::exception &) { std::unique_lock held(lock); sum += std::stoi(name); }
    });
  for (auto &thread : threads) thread.join();
  std::cout << "threads: " << sum << " " << Told::gone << " " << name << "\n";
  auto later = std::async(std::launch::async, []() -> int { throw std::out_of_range("from another thread"); });
  try { later.get(); } catch (const std::out_of_range &error) { std::cout << "future: " << error.what() << "\n"; }
  std::cout << "locale: " << std::locale("C.UTF-8").name() << " " << std::setlocale(LC_ALL, "") << "\n";
  try { std::locale("xx_YY"); } catch (const std::runtime_error &error) { std::cout << "locale: " << error.what() << "\n"; }
  std::ostringstream text;
  text << std::hexfloat << 1.5L << " " << std::fixed << 2.25;
  std::cout << "text: " << text.str() << " " << std::regex_replace("abc", std::regex("b(.)"), "$1") << "\n";
  std::cout << "files: " << std::filesystem::exists("/etc/passwd") << std::filesystem::is_directory("/etc") << "\n";
  std::random_device random;
  std::cout << "random: " << (random() != random() || random() != random()) << " " << std::mt19937(1)() << "\n";
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}
