// Exception guard of the host's C functions.
#pragma once

#include <new>
#include <string>

#include <harmonics/tensor.hpp>

namespace harmonics::engine {

// Sets this thread's last error and returns HX_ERROR.
hx_status fail(ErrorKind kind, std::string text);

template <typename Body>
hx_status guard(Body&& body) noexcept {
  try {
    body();
    return HX_OK;
  } catch (const detail::NeedsValues&) {
    return HX_NEEDS_VALUES;
  } catch (const detail::NeedsWidth&) {
    return HX_NEEDS_WIDTH;
  } catch (const Error& e) {
    std::string text = e.what();
    for (const std::string& note : e.notes()) text += "\n" + note;
    return fail(e.kind(), std::move(text));
  } catch (const std::bad_alloc& e) {
    return fail(ErrorKind::Memory, text_of_memory(e));
  } catch (const std::exception& e) {
    return fail(ErrorKind::Internal, e.what());
  } catch (...) {
    return fail(ErrorKind::Internal, "an exception of unknown type");
  }
}

}  // namespace harmonics::engine
