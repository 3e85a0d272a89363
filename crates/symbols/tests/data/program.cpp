// A program with much inlining and many templates, on which symbolizers are compared. It can be run, and prints one
// number.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

namespace shop {
struct Item {
    std::string name;
    double price;
};

template <typename T> class Store {
public:
    void add(T value) { values.push_back(std::move(value)); }
    template <typename F> void each(F &&f) const {
        for (const auto &value : values) f(value);
    }
    std::size_t size() const { return values.size(); }

private:
    std::vector<T> values;
};

static inline double twice(double x) { return x + x; }
static inline double cost(const Item &item) { return twice(item.price) + item.name.size(); }

namespace {
struct Hidden {
    std::map<std::string, std::shared_ptr<Item>> items;
    std::shared_ptr<Item> &operator[](const std::string &key) { return items[key]; }
};
} // namespace

double total(const Store<Item> &store) {
    double sum = 0;
    store.each([&sum](const Item &item) { sum += cost(item); });
    return sum;
}
} // namespace shop

int main(int count, char **) {
    shop::Store<shop::Item> store;
    shop::Hidden hidden;
    std::unordered_map<int, std::vector<std::string>> index;
    std::regex word("([a-z]+)([0-9]*)", std::regex::ECMAScript);
    std::istringstream text("alpha1 beta2 gamma delta4 epsilon");
    std::string token;
    while (text >> token) {
        std::smatch match;
        if (std::regex_match(token, match, word)) {
            store.add({match[1].str(), static_cast<double>(token.size())});
            hidden[match[1].str()] = std::make_shared<shop::Item>(shop::Item{token, 1.0});
            index[static_cast<int>(token.size())].push_back(token);
        }
    }
    std::vector<std::string> names;
    for (auto &[size, list] : index)
        for (auto &name : list) names.push_back(name + std::to_string(size * count));
    std::sort(names.begin(), names.end(), std::greater<>());
    std::stable_sort(names.begin(), names.end(), [](const auto &a, const auto &b) { return a.size() < b.size(); });
    std::function<double()> sum = [&] { return shop::total(store) + static_cast<double>(names.size()); };
    std::printf("%.0f\n", sum());
}
