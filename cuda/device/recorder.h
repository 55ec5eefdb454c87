/* What the device's and the host's half of the recorder agree on besides the records. */
#ifndef NVABI_RECORDER_H
#define NVABI_RECORDER_H

/* Words behind each region that take the events that do not fit. A region thus begins every
 * capacity + NVABI_TRACE_SLACK words. */
#define NVABI_TRACE_SLACK 3u

/* `words` of a nvabi_trace_warp is, until the host corrects it, the position that the warp came to: half
 * words (4 bytes) from the first region's start, 0 where it recorded nothing. It may lie behind the
 * region. */

/* `taken` of a nvabi_trace_ballot is, until the host corrects it, the lanes that went the way of the lowest
 * active lane; `way` is not written. */

/* Units of an image, and sites of each: together the sites that an event can name. */
#define NVABI_TRACE_UNITS 1024u
#define NVABI_TRACE_UNIT_SITES 0x4000u

#endif
