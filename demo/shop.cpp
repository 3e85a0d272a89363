// The demo: a small shop server with the four problems that a heap profile shows.
//
//   import_catalogue   builds a big list once: the peak
//   remember           keeps every session in a cache that is never emptied: the leak
//   label              builds a string per item only to throw it away: temporary allocations
//   answer             makes nearly all allocations, by itself and by calling label: the hot spot
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

struct Item {
    std::string name;
    double price;
};

struct Session {
    std::string user;
    std::vector<int> basket;
};

static std::map<int, Session *> cache;

[[gnu::noinline]] static std::vector<Item> import_catalogue(int count) {
    std::vector<Item> items;
    for (int i = 0; i < count; i++) items.push_back({"a book with a long title, number " + std::to_string(i), i * 0.25});
    return items;
}

[[gnu::noinline]] static Session *remember(int id) {
    Session *session = new Session{"customer number " + std::to_string(id) + " of the shop", {}};
    cache[id] = session;
    return session;
}

[[gnu::noinline]] static size_t label(const Item &item) {
    std::string text = item.name + ", now only " + std::to_string(item.price);
    return text.size();
}

[[gnu::noinline]] static size_t answer(const std::vector<Item> &items, Session *session, int request) {
    auto page = std::make_unique<std::vector<std::string>>();
    size_t length = 0;
    for (int i = 0; i < 40; i++) {
        const Item &item = items[(request * 31 + i) % items.size()];
        length += label(item);
        page->push_back(item.name);
    }
    session->basket.push_back(request);
    return length + page->size();
}

int main() {
    size_t sent = 0;
    {
        std::vector<Item> warehouse = import_catalogue(20000);
        std::vector<Item> items(warehouse.begin(), warehouse.begin() + 500);
        warehouse.clear();
        warehouse.shrink_to_fit();
        for (int request = 0; request < 5000; request++) {
            Session *session = request % 5 == 0 ? remember(request) : cache.rbegin()->second;
            sent += answer(items, session, request);
        }
    }
    std::printf("5000 requests, %zu bytes sent\n", sent);
    return 0;
}
