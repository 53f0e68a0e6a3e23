/* Sums of /proc/self/status. */
#ifndef STATUS_H
#define STATUS_H

#include "check.h"

/* How much of the process is locked, in kB. */
static long locked(void)
{
    char line[256];
    long size = -1;
    FILE *file = fopen("/proc/self/status", "r");
    MUST(file);
    while (fgets(line, sizeof line, file))
        sscanf(line, "VmLck: %ld", &size);
    fclose(file);
    return size;
}

#endif
