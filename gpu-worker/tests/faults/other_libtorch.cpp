// Stands before libtorch (LD_PRELOAD) and answers in its place that it is another version.

#include <map>
#include <string>

namespace caffe2 {

const std::map<std::string, std::string>& GetBuildOptions() {
  static const std::map<std::string, std::string> options = {{"TORCH_VERSION", "2.10.0"}};
  return options;
}

} // namespace caffe2
