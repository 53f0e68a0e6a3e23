#@ variants: bare
#@ args: 1
#@ timeout: 30
# The program "superblocks", as code that it makes itself: superblocks are laid over that while it
# runs.
#define GENERATED
#include "superblocks.S"
