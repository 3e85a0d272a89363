// Input for cc1plus, which is the recorded program: templates and constant evaluation.
template <int N> struct Sum { static constexpr long value = N + Sum<N - 1>::value; };
template <> struct Sum<0> { static constexpr long value = 0; };
template <typename... T> constexpr unsigned long sizes() { return (sizeof(T) + ... + 0ul); }
constexpr long collatz(long n) { return n == 1 ? 0 : 1 + collatz(n % 2 ? 3 * n + 1 : n / 2); }
static_assert(Sum<300>::value == 45150);
static_assert(collatz(27) == 111);
unsigned long result() { return sizes<char, int, long, double>() + static_cast<unsigned long>(Sum<200>::value); }
