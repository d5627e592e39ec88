/* The library that a profiler loads into a program (NVTX_INJECTION64_PATH). It writes each range's name, and "-" for
   its end, into the file CAIRN_TEST_NVTX_LOG. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *log_file;

static int push(const char *name) { return fprintf(log_file, "%s\n", name); }

static int pop(void) { return fprintf(log_file, "-\n"); }

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table)
{
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table;
    unsigned size = 0;
    const char *path = getenv("CAIRN_TEST_NVTX_LOG");
    log_file = path ? fopen(path, "w") : NULL;
    if (!log_file || !callbacks) return 0;
    if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) || size <= NVTX_CBID_CORE_RangePop)
        return 0;
    *table[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
