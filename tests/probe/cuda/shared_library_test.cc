// Libraries that are loaded at run time: found in order, and missed in words.
#include "probe/cuda/shared_library.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace ledger::cuda {
namespace {

namespace fs = std::filesystem;

class LibraryPath : public testing::Test {
 protected:
  LibraryPath() : folder(fs::path(testing::TempDir()) / ("libraries_" + std::to_string(getpid()))) {
    fs::create_directories(folder);
    setenv("PROBE_LIB_PATH", folder.c_str(), 1);
  }
  ~LibraryPath() override {
    unsetenv("PROBE_LIB_PATH");
    fs::remove_all(folder);
  }
  fs::path folder;
};

const LibraryNames kMath = {"the maths library", {"libm.so.999", "libm.so.6"}, "cosines", "maths"};
const LibraryNames kNowhere = {"cuWonder", {"libcuWonder.so.13", "libcuWonder.so.12"}, "wonders", "nvidia-wonder"};

TEST(SharedLibraries, TakeTheFirstNameThatIsThere) {
  SharedLibrary library(kMath);
  ASSERT_TRUE(library.loaded()) << library.error();
  EXPECT_EQ(library.soname(), "libm.so.6");
  EXPECT_NE(library.symbol("cos"), nullptr);
  EXPECT_EQ(library.missing(), "");
  EXPECT_EQ(library.symbol("no_such_function"), nullptr);
  EXPECT_EQ(library.missing(), "no_such_function");
}

TEST(SharedLibraries, SayWhatIsMissingWhereItWasSoughtAndWhatToDo) {
  const SharedLibrary library(kNowhere);
  EXPECT_FALSE(library.loaded());
  for (const char* part : {"cuWonder is needed for wonders", "libcuWonder.so.13, libcuWonder.so.12", "LD_LIBRARY_PATH",
                           "/usr/local/cuda/lib64", "nvidia-wonder", "PROBE_LIB_PATH", "python3 -c"}) {
    EXPECT_NE(library.error().find(part), std::string::npos) << part << "\n" << library.error();
  }
}

TEST(SharedLibraries, OfTheDriverAreNotInAPackage) {
  LibraryNames names = kNowhere;
  names.wheel = nullptr;
  const SharedLibrary library(names);
  EXPECT_NE(library.error().find("belongs to the NVIDIA driver"), std::string::npos);
  EXPECT_EQ(library.error().find("pip"), std::string::npos);
}

TEST_F(LibraryPath, IsSearchedFirst) {
  // A name of its own: the loader keeps what it once loaded under one.
  const LibraryNames names = {"cuFirst", {"libcuFirst.so.13", "libcuFirst.so.12"}, "firsts", "nvidia-first"};
  fs::create_symlink("/lib/x86_64-linux-gnu/libm.so.6", folder / "libcuFirst.so.12");
  if (!fs::exists(folder / "libcuFirst.so.12")) GTEST_SKIP() << "libm lies elsewhere here";
  const SharedLibrary library(names);
  EXPECT_TRUE(library.loaded()) << library.error();
  EXPECT_EQ(library.soname(), "libcuFirst.so.12");
}

TEST_F(LibraryPath, WithABrokenFileSaysSo) {
  std::ofstream(folder / "libcuWonder.so.13") << "not a library";
  const SharedLibrary library(kNowhere);
  EXPECT_FALSE(library.loaded());
  EXPECT_NE(library.error().find("does not load"), std::string::npos) << library.error();
  EXPECT_NE(library.error().find("$PROBE_LIB_PATH"), std::string::npos);
}

TEST(SharedLibraries, MoveAndStayLoaded) {
  SharedLibrary first(kMath);
  SharedLibrary second = std::move(first);
  EXPECT_TRUE(second.loaded());
  EXPECT_NE(second.symbol("sin"), nullptr);
  EXPECT_FALSE(first.loaded());  // NOLINT(bugprone-use-after-move): that is the question
}

}  // namespace
}  // namespace ledger::cuda
