/* What a kernel did wrong: a report that names the kernel, the instruction and the lane, and ends the launch. */
#include <stdarg.h>

#include "machine.h"

jmp_buf fault_exit;
static char report[2048];

const char *fault_report(void) { return report; }

_Noreturn void fault(const Wave *w, const Insn *i, const char *kind, const char *format, ...) {
    const Launch *launch = w->launch;
    const Module *module = launch->module;
    char what[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    snprintf(report, sizeof report,
             "%s: %s\n"
             "  kernel %s, workgroup (%u, %u, %u), wave %u\n"
             "  pc 0x%x: %s\n"
             "  exec 0x%llx, %llu instructions into the launch\n",
             kind, what, launch->kernel->name, launch->group[0], launch->group[1], launch->group[2], w->id, i->pc,
             module->strings + i->text, (unsigned long long)w->exec, (unsigned long long)launch->n_executed);
    longjmp(fault_exit, 1);
}
