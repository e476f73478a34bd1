// What R and its children write to descriptors 1 and 2, and the lines that go to the agent.
//
// Both descriptors are pipes into this process. A thread empties them, so that no writer ever waits
// for R itself, and nothing grows: a full buffer leaves as a message, and when the agent does not
// read, the thread waits in its write and the writers wait for the thread. Output that no run waits
// for is dropped.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "json.h"

enum stream { STREAM_OUT = 0, STREAM_ERR = 1 };

// Takes over the descriptors and starts the thread. False when that failed.
bool output_start(int agent);

// Between these two calls output is sent; outside it is dropped.
void output_begin_run(void);
void output_end_run(void);

// Sends what was written so far, standard output first.
void output_flush(void);

// Sends one message of a stream, after what was written so far. In a forked child it goes to the
// stream itself.
void output_message(enum stream stream, const char* data, size_t size);

// From begin on standard output is kept, up to a limit; take hands out the text and ends that. The
// text is valid until the next begin.
void output_collect_begin(void);
const struct text* output_collect_take(void);

// Sends a line of the protocol as it is, after what was written so far.
void output_line(const struct text* line);

// Sends a line without looking at the streams.
void output_answer(const char* line);
