"""One name for each operation: the families call the same thing differently. The names are those of `machine/`."""

import functools
import re

WITHOUT_EFFECT = frozenset(
    [
        "S_NOP",
        "S_SLEEP",
        "S_SLEEP_VAR",
        "S_CLAUSE",
        "S_DELAY_ALU",
        "S_WAIT_ALU",
        "S_WAITCNT_DEPCTR",
        "S_SET_INST_PREFETCH_DISTANCE",
        "S_INST_PREFETCH",
        "S_SETPRIO",
        "S_ICACHE_INV",
        "S_DCACHE_INV",
        "S_DCACHE_WB",
        "S_DCACHE_INV_VOL",
        "S_DCACHE_WB_VOL",
        "S_GL1_INV",
        "S_SENDMSG",
        "S_WAIT_EVENT",
        "S_WAIT_IDLE",
        "S_WAIT_EXPCNT",
        "S_WAITCNT_EXPCNT",
        "S_TTRACEDATA",
        "S_TTRACEDATA_IMM",
        "S_WAKEUP",
        "S_PREFETCH_INST",
        "S_PREFETCH_INST_PC_REL",
        "S_PREFETCH_DATA",
        "S_PREFETCH_DATA_PC_REL",
        "S_BUFFER_PREFETCH_DATA",
        "S_DENORM_MODE",
        "S_CODE_END",
        "S_INCPERFLEVEL",
        "S_DECPERFLEVEL",
        "S_VERSION",
        "BUFFER_GL0_INV",
        "BUFFER_GL1_INV",
        "BUFFER_WBL2",
        "BUFFER_INV",
        "GLOBAL_INV",
        "GLOBAL_WB",
        "GLOBAL_WBINV",
        "BUFFER_WBINVL1",
        "BUFFER_WBINVL1_VOL",
    ]
)
"""Timing, prefetching and cache control."""

SAME_AS = {
    "V_ADD_U32": "V_ADD_NC_U32",
    "V_SUB_U32": "V_SUB_NC_U32",
    "V_SUBREV_U32": "V_SUBREV_NC_U32",
    "V_ADD_I32": "V_ADD_NC_I32",
    "V_SUB_I32": "V_SUB_NC_I32",
    "V_ADD_U16": "V_ADD_NC_U16",
    "V_SUB_U16": "V_SUB_NC_U16",
    "V_SUBREV_U16": "V_SUBREV_NC_U16",
    "V_ADD_I16": "V_ADD_NC_I16",
    "V_SUB_I16": "V_SUB_NC_I16",
    "V_ADDC_CO_U32": "V_ADD_CO_CI_U32",
    "V_SUBB_CO_U32": "V_SUB_CO_CI_U32",
    "V_SUBBREV_CO_U32": "V_SUBREV_CO_CI_U32",
    "V_MAD_U64_U32": "V_MAD_CO_U64_U32",
    "V_MAD_I64_I32": "V_MAD_CO_I64_I32",
    "V_FFBH_U32": "V_CLZ_I32_U32",
    "V_FFBL_B32": "V_CTZ_I32_B32",
    "V_FFBH_I32": "V_CLS_I32",
    "V_CVT_RPI_I32_F32": "V_CVT_NEAREST_I32_F32",
    "V_CVT_FLR_I32_F32": "V_CVT_FLOOR_I32_F32",
    "V_CVT_PKRTZ_F16_F32": "V_CVT_PK_RTZ_F16_F32",
    "V_MUL_LEGACY_F32": "V_MUL_DX9_ZERO_F32",
    "V_MAD_MIX_F32": "V_FMA_MIX_F32",
    "V_MAD_MIXLO_F16": "V_FMA_MIXLO_F16",
    "V_MAD_MIXHI_F16": "V_FMA_MIXHI_F16",
    "V_ACCVGPR_READ": "V_MOV_B32",
    "V_ACCVGPR_WRITE": "V_MOV_B32",
    "V_ACCVGPR_MOV_B32": "V_MOV_B32",
    "S_FF1_I32_B32": "S_CTZ_I32_B32",
    "S_FF1_I32_B64": "S_CTZ_I32_B64",
    "S_FLBIT_I32_B32": "S_CLZ_I32_U32",
    "S_FLBIT_I32_B64": "S_CLZ_I32_U64",
    "S_FLBIT_I32": "S_CLS_I32",
    "S_ADD_CO_U32": "S_ADD_U32",
    "S_SUB_CO_U32": "S_SUB_U32",
    "S_ADD_CO_I32": "S_ADD_I32",
    "S_SUB_CO_I32": "S_SUB_I32",
    "S_ADD_CO_CI_U32": "S_ADDC_U32",
    "S_SUB_CO_CI_U32": "S_SUBB_U32",
    "S_SETREG_B32": "S_SETREG",
    "S_SETREG_IMM32_B32": "S_SETREG",
}

PATTERNS = (
    (re.compile(r"_E(32|64)$"), ""),
    # Before CDNA 3 the shape and the type were one word.
    (re.compile(r"^(V_MFMA_\w+X\d+)((BF16|F16|F32|F64|I8)(_1K)?)$"), r"\1_\2"),
    (re.compile(r"^V_DUAL_"), "V_"),
    (re.compile(r"^(S_AND|S_OR)N1_"), r"\1_NOT0_"),
    (re.compile(r"^(S_AND|S_OR)N2_"), r"\1_NOT1_"),
    # IEEE's minNum and maxNum, which RDNA 4 tells from minimum and maximum.
    (re.compile(r"_(MIN|MAX|MIN3|MAX3|MED3|MAXMIN|MINMAX)_(F\d\d)$"), r"_\1_NUM_\2"),
    # Accumulating forms: encode.py makes the destination a source.
    (re.compile(r"^V_(PK_)?FMAC_"), r"V_\1FMA_"),
    (re.compile(r"^V_MAC_"), "V_MAD_"),
    (re.compile(r"^([VS])_(FMA|MAD)[AM]K_"), r"\1_\2_"),
    (re.compile(r"^S_FMAC_"), "S_FMA_"),
    (re.compile(r"^V_DOT(\d)(C|ACC)_"), r"V_DOT\1_"),
    (re.compile(r"^S_(CMP|ADD|MUL)K_"), r"S_\1_"),
    (re.compile(r"^S_(C?MOV)K_I32$"), r"S_\1_B32"),
)


@functools.cache
def operation(name: str) -> str:
    """The name under which `machine/` has the operation of an opcode."""
    for pattern, replacement in PATTERNS:
        name = pattern.sub(replacement, name)
    return "S_NOP" if name in WITHOUT_EFFECT else SAME_AS.get(name, name)
