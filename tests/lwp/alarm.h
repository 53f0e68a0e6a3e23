/* SIGALRM for programs that are to be interrupted everywhere. */
#ifndef ALARM_H
#define ALARM_H

#include <signal.h>
#include <string.h>
#include <sys/time.h>

static void on_alarm(void (*handler)(int))
{
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_handler = handler;
	action.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &action, NULL);
}

/* Every so many microseconds; never with 0. */
static inline void alarm_every(long microseconds)
{
	struct itimerval often = { { 0, microseconds }, { 0, microseconds } };
	setitimer(ITIMER_REAL, &often, NULL);
}

/* Once, in so many microseconds; never with 0. A program that asks again behind each alarm gets on
 * however long an alarm takes. */
static inline void alarm_once(long microseconds)
{
	struct itimerval once = { { 0, 0 }, { 0, microseconds } };
	setitimer(ITIMER_REAL, &once, NULL);
}

#endif
