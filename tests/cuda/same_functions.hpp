// Compares our declaration of a library function with its header's. Our handles are void* and our enumerations int, so
// arguments are compared by size and by whether they are pointers.
#pragma once

#include <cstdint>
#include <type_traits>

namespace harmonics::cuda::testing {

constexpr bool agree(int64_t ours, int64_t theirs) { return ours == theirs; }  // two enumerators

template <typename A, typename B>
constexpr bool same_argument =
    std::is_void_v<A>
        ? std::is_void_v<B>
        : std::is_pointer_v<A> == std::is_pointer_v<B>&& std::is_floating_point_v<A> == std::is_floating_point_v<B>;
template <typename A, typename B>
constexpr bool same_size() {
  if constexpr (std::is_void_v<A> || std::is_void_v<B>)
    return std::is_void_v<A> == std::is_void_v<B>;
  else
    return sizeof(A) == sizeof(B);
}

template <typename Ours, typename Theirs>
struct Compared : std::false_type {};
template <typename R, typename... A, typename S, typename... B>
struct Compared<R (*)(A...), S (*)(B...)> : std::bool_constant<[] {
  if constexpr (sizeof...(A) != sizeof...(B))
    return false;
  else
    return same_argument<R, S> && same_size<R, S>() && ((same_argument<A, B> && same_size<A, B>()) && ...);
}()> {};
template <typename Ours, typename Theirs>
constexpr bool same_function = Compared<Ours, Theirs>::value;

template <typename T>
struct Member;
template <typename C, typename T>
struct Member<T C::*> {
  using Type = T;
};
template <auto member>
using member_of = typename Member<decltype(member)>::Type;

}  // namespace harmonics::cuda::testing
