# A file in C++ with many templates.
BEGIN {
  print "#include <algorithm>\n#include <map>\n#include <string>\n#include <vector>\n#include <functional>\n#include <memory>"
  for (i = 0; i < 4; i++) {
    printf "template <int N> struct t%d { std::map<std::string, std::vector<t%d>> children; int value = N + %d; int sum() const { int s = value; for (auto &[k, v] : children) for (auto &c : v) s += c.sum() + (int)k.size(); return s; } };\n", i, i, i
    printf "int g%d(const std::vector<std::string> &words) { t%d<%d> root; for (auto &w : words) root.children[w + std::to_string(%d)].push_back({}); std::function<int(int)> f = [&](int x) { return x + root.sum(); }; auto p = std::make_shared<t%d<%d>>(); std::vector<int> n(words.size()); std::sort(n.begin(), n.end()); return f(p->sum()) + (n.empty() ? 0 : n[0]); }\n", i, i, i, i, i, i + 1
  }
  print "int main() { return g0({}); }"
}
