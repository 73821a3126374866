/* What the fixture missing_dependency is linked with and does not find when it is loaded. */
void a_function_of_a_library_that_is_gone(void);
void a_function_of_a_library_that_is_gone(void) {}
