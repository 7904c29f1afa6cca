/* Checks of the test programs. */
#ifndef CHECK_H
#define CHECK_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <tenon.h>

/* Ends the program unless a call returned what was expected. */
static void check(const char *text, int line, int64_t got, int64_t expected) {
    if (got == expected)
        return;
    fprintf(stderr, "line %d: %s is %" PRId64 ", not %" PRId64 ": %s\n", line, text, got, expected,
            tenon_last_error());
    exit(1);
}
#define IS(call, expected) check(#call, __LINE__, (call), (expected))
#define OK(call) IS(call, 0)
#define TRUE(condition) check(#condition, __LINE__, (condition) ? 1 : 0, 1)

#endif
