// Containers, strings and virtual functions.
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace shapes {
struct Shape {
    virtual ~Shape() = default;
    virtual int area() const = 0;
};
struct Square : Shape {
    int side;
    explicit Square(int side) : side(side) {}
    int area() const override { return side * side; }
};
struct Strip : Shape {
    int length;
    explicit Strip(int length) : length(length) {}
    int area() const override { return length; }
};
}

template <typename T>
__attribute__((noinline)) T total(const std::vector<std::unique_ptr<shapes::Shape>> &all)
{
    T sum = 0;
    for (const auto &shape : all)
        sum += shape->area();
    return sum;
}

int main()
{
    std::map<std::string, int> counts;
    std::vector<std::unique_ptr<shapes::Shape>> all;
    for (int i = 0; i < 700; i++) {
        counts["word" + std::to_string(i * 31 % 97)]++;
        if (i % 3)
            all.push_back(std::make_unique<shapes::Square>(i % 10));
        else
            all.push_back(std::make_unique<shapes::Strip>(i));
    }
    std::printf("%zu %ld\n", counts.size(), total<long>(all));
}
