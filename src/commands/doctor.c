/* `cairn doctor`: this machine as Cairn sees it, on one screen: for a bug report. A line that cannot be filled says
   why; nothing is changed, but for a small file that is written and removed to time the disk. */
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/host.h"
#include "base/machine_memory.h"
#include "base/module.h"
#include "base/parallel.h"
#include "base/terminal.h"
#include "comm/mesh/gloo.h"
#include "comm/mesh/nccl.h"
#include "commands/commands.h"
#include "data/hdf5_file.h"
#include "kernels/backend.h"
#include "launch/machine.h"

typedef struct {
    bool json;
    int rows;
    Buf out;
} Sheet;

/* One line of the sheet. */
__attribute__((format(printf, 3, 4))) static void put(Sheet *s, const char *name, const char *format, ...)
{
    enum { NAME_COLUMNS = 12 };
    Buf text = {0};
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    if (s->json) {
        buf_puts(&s->out, s->rows ? ",\n " : "{");
        buf_json(&s->out, name);
        buf_puts(&s->out, ": ");
        buf_json(&s->out, text.data);
    } else {
        bool bold = terminal_colours(STDOUT_FILENO);
        buf_printf(&s->out, "%s%-*s%s", bold ? TERMINAL_BOLD : "", NAME_COLUMNS, name, bold ? TERMINAL_PLAIN : "");
        terminal_wrap(&s->out, text.data, NAME_COLUMNS, terminal_columns(STDOUT_FILENO));
    }
    s->rows++;
    buf_free(&text);
}

static void put_bytes(Buf *out, const char *what, uint64_t bytes)
{
    buf_printf(out, "%s%s ", out->len ? ", " : "", what);
    if (bytes >= SIZE_MAX >> 4)
        buf_puts(out, "unlimited");
    else if (bytes >= (uint64_t)1 << 30)
        buf_printf(out, "%.1f GiB", (double)bytes / (1 << 30));
    else
        buf_printf(out, "%.1f MiB", (double)bytes / (1 << 20));
}

/* ---- the machine ---- */

static void put_system(Sheet *s)
{
    struct utsname u;
    char name[128], now[32];
    clock_iso(now, sizeof now);
    put(s, "cairn", "%s, %s", CAIRN_VERSION, now);
    host_value("/etc/os-release", "PRETTY_NAME", name, sizeof name);
    if (uname(&u) == 0)
        put(s, "system", "%s: %s, Linux %s, %s%s", u.nodename, *name ? name : "unknown", u.release, u.machine,
            file_exists("/.dockerenv") || file_exists("/run/.containerenv") || file_exists("/.singularity.d")
                ? ", in a container"
                : "");
}

static void put_processor(Sheet *s)
{
    static const char *const known[] = {"avx2",        "fma",      "avx512f",  "avx512vl", "avx512_vnni",
                                        "avx512_bf16", "amx_bf16", "amx_tile", "asimd",    "bf16"};
    char model[128], flags[4096], cores[512];
    Buf has = {0};
    host_value("/proc/cpuinfo", "model name", model, sizeof model);
    host_value("/proc/cpuinfo", "flags", flags, sizeof flags);
    if (!*flags) host_value("/proc/cpuinfo", "Features", flags, sizeof flags);
    host_value("/proc/self/status", "Cpus_allowed_list", cores, sizeof cores);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (str_list_has(flags, ' ', known[i], strlen(known[i])))
            buf_printf(&has, "%s%s", has.len ? " " : "", known[i]);
    put(s, "processor", "%s; %ld threads, %d of them for this process (%s); %s", *model ? model : "unknown",
        sysconf(_SC_NPROCESSORS_ONLN), parallel_cores(), *cores ? cores : "unknown",
        has.len ? has.data : "no vector instructions that Cairn uses");
    buf_free(&has);
}

static void put_memory(Sheet *s)
{
    Buf text = {0};
    size_t limit = cgroup_limit_bytes("");
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    put_bytes(&text, "machine", (uint64_t)pages * (uint64_t)page);
    put_bytes(&text, "free for this process", machine_free_bytes());
    put_bytes(&text, "cgroup's limit", limit);
    put(s, "memory", "%s", text.data);
    buf_free(&text);
}

/* ---- what loads ---- */

static void put_backend(Sheet *s, const char *name)
{
    static const Dtype types[] = {F32, BF16, F16};
    char why[256];
    Buf has = {0};
    Backend *b;
    if (backend_open(name, NULL, &b) != OK) {
        put(s, name, "no: %s", status_message());
        return;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (b->supports(b, types[i], why, sizeof why))
            buf_printf(&has, "%s%s", has.len ? ", " : "", dtype_name(types[i]));
    put(s, name, "%s; %s (auto: %s)", b->describe, has.data ? has.data : "no type", dtype_name(b->best_compute(b)));
    buf_free(&has);
    backend_close(b);
}

static void put_gpus(Sheet *s)
{
    char driver[256];
    int n = gpus_count();
    host_value("/proc/driver/nvidia/version", "NVRM version", driver, sizeof driver);
    if (n || *driver)
        put(s, "GPUs",
            "%d for this process; driver: %s; the cuda backend takes Turing (compute capability 7.5) or newer", n,
            *driver ? driver : "unknown");
    else
        put(s, "GPUs",
            "none: no NVIDIA driver is loaded; the cuda backend takes Turing (compute capability 7.5) or newer");
}

static void put_transport(Sheet *s)
{
    void *module = NULL;
    const NcclModule *nccl;
    if (module_load("transport", "gloo", GLOO_ABI, "", &module) == OK)
        put(s, "gloo", "loads");
    else
        put(s, "gloo", "no: %s", status_message());
    if (module_load("transport", "nccl", NCCL_MODULE_ABI, "It is built with -DWITH_CUDA=ON", &module) != OK ||
        module_symbol(module, "transport", "nccl", "cairn_comm_nccl", (void **)&nccl) != OK)
        put(s, "NCCL", "no: %s", status_message());
    else
        put(s, "NCCL", "%d.%d.%d", nccl->version() / 10000, nccl->version() / 100 % 100, nccl->version() % 100);
}

/* ---- limits ---- */

static void add_limit(Buf *out, const char *what, int resource, bool bytes)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0) return;
    if (bytes || limit.rlim_cur == RLIM_INFINITY)
        put_bytes(out, what, limit.rlim_cur);
    else
        buf_printf(out, "%s%s %llu", out->len ? ", " : "", what, (unsigned long long)limit.rlim_cur);
}

static void put_limits(Sheet *s)
{
    Buf text = {0};
    struct statvfs shm;
    char quota[64];
    add_limit(&text, "memlock", RLIMIT_MEMLOCK, true);
    add_limit(&text, "addresses", RLIMIT_AS, true);
    add_limit(&text, "file size", RLIMIT_FSIZE, true);
    add_limit(&text, "open files", RLIMIT_NOFILE, false);
    add_limit(&text, "processes", RLIMIT_NPROC, false);
    host_value("/sys/fs/cgroup/cpu.max", "", quota, sizeof quota);
    if (*quota) buf_printf(&text, ", cgroup's cpu.max %s", quota);
    put(s, "limits", "%s", text.data);
    buf_free(&text);
    if (statvfs("/dev/shm", &shm) != 0) {
        put(s, "/dev/shm", "no: %m");
        return;
    }
    put_bytes(&text, "size", (uint64_t)shm.f_blocks * shm.f_frsize);
    put_bytes(&text, "free", (uint64_t)shm.f_bavail * shm.f_frsize);
    put(s, "/dev/shm", "%s%s", text.data, access("/dev/shm", W_OK) == 0 ? "" : "; not writable: no snapshots");
    buf_free(&text);
}

/* ---- the cluster ---- */

static bool on_path(const char *program)
{
    const char *path = getenv("PATH");
    bool found = false;
    char *list = mem_strdup(path ? path : ""), *at = list;
    for (char *folder = strsep(&at, ":"); folder && !found; folder = strsep(&at, ":")) {
        char *file = file_join(*folder ? folder : ".", program);
        found = access(file, X_OK) == 0;
        free(file);
    }
    free(list);
    return found;
}

static void put_schedulers(Sheet *s)
{
    static const struct {
        const char *name, *variable, *programs[4];
    } known[] = {{"PBS", "PBS_JOBID", {"qsub", "pbs_attach", "pbs_tmrsh"}},
                 {"Slurm", "SLURM_JOB_ID", {"sbatch", "srun"}},
                 {"Grid Engine", "SGE_ROOT", {"qsub", "qrsh"}},
                 {"MPI", "OMPI_COMM_WORLD_SIZE", {"mpirun"}},
                 {"torchrun", "TORCHELASTIC_RUN_ID", {"torchrun"}},
                 {"ssh", NULL, {"ssh"}}};
    Buf text = {0};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *job = known[i].variable ? getenv(known[i].variable) : NULL;
        Buf programs = {0};
        for (int k = 0; k < 4 && known[i].programs[k]; k++)
            if (on_path(known[i].programs[k]))
                buf_printf(&programs, "%s%s", programs.len ? " " : "", known[i].programs[k]);
        if (job || programs.len)
            buf_printf(&text, "%s%s (%s%s%s)", text.len ? ", " : "", known[i].name, job ? known[i].variable : "",
                       job && programs.len ? ", " : "", programs.data ? programs.data : "");
        buf_free(&programs);
    }
    put(s, "schedulers", "%s", text.len ? text.data : "none seen");
    buf_free(&text);
}

/* Variables that change what Cairn, its libraries and its launchers do. */
static void put_variables(Sheet *s)
{
    static const char prefixes[] =
        "CAIRN_ OMP_ GOMP_ KMP_ DNNL_ ONEDNN_ CUDA_ NVIDIA_ NCCL_ GLOO_ MALLOC_ LD_PRELOAD LD_LIBRARY_PATH";
    Buf text = {0};
    for (char **e = environ; *e; e++)
        if (variable_begins(*e, prefixes) && strncmp(*e, "CAIRN_JOB_TOKEN=", 16) != 0)
            buf_printf(&text, "%s%s", text.len ? " " : "", *e);
    put(s, "variables", "%s", text.len ? text.data : "none of Cairn's and its libraries'");
    buf_free(&text);
}

/* ---- the disk ---- */

enum { DISK_BYTES = 32 << 20 };

/* Bytes per second, written and made durable in `dir`. */
static Status time_disk(const char *dir, double *rate)
{
    FileWriter w;
    char *path = file_join(dir, "cairn-doctor.tmp.0"), *data = mem_alloc(1 << 20);
    double start = clock_monotonic();
    for (int i = 0; i < 1 << 20; i++) data[i] = (char)(i * 2654435761u >> 13); /* no run of one byte */
    Status status = file_writer_open(&w, path);
    for (int i = 0; i < DISK_BYTES >> 20 && status == OK; i++) status = file_writer_write(&w, data, 1 << 20);
    if (status == OK)
        status = file_writer_close(&w, NULL, NULL);
    else
        file_writer_abandon(&w);
    *rate = DISK_BYTES / (clock_monotonic() - start);
    unlink(path);
    MEM_FREE(data, path);
    return status;
}

static void put_disk(Sheet *s, const char *dir)
{
    uint64_t room;
    double rate;
    Buf text = {0};
    if (!file_is_directory(dir)) {
        put(s, "disk", "%s: there is no such folder; expected one to write to", dir);
        return;
    }
    if (file_free_bytes(dir, &room) == OK) put_bytes(&text, "free", room);
    if (time_disk(dir, &rate) == OK)
        put(s, "disk", "%s: %.0f MB/s written and durable (%d MiB), %s", dir, rate / 1e6, DISK_BYTES >> 20,
            text.len ? text.data : "free space unknown");
    else
        put(s, "disk", "%s: %s", dir, status_message());
    buf_free(&text);
}

Status command_doctor(const Config *c)
{
    Sheet s = {.json = c->json};
    put_system(&s);
    put_processor(&s);
    put_memory(&s);
    put_variables(&s); /* before a backend sets some */
    put_backend(&s, "cpu");
    put_gpus(&s);
    put_backend(&s, "cuda");
    put_transport(&s);
    put(&s, "HDF5", "%s", hdf5_available() ? "yes" : "no: this build makes and reads no shards");
    put_limits(&s);
    put_schedulers(&s);
    put_disk(&s, c->source[OPTION_output_dir] == FROM_DEFAULT ? "." : c->output_dir);
    if (s.json) buf_puts(&s.out, "}\n");
    buf_print(&s.out);
    return OK;
}
