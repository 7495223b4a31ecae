"""The instructions of SPIR-V that the translation reads: their numbers, names, and the operands that are ids.

An instruction whose number is not in ``OPERATIONS`` is refused by name where that is known, else by number.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operation:
    """One kind of instruction.

    Attributes
    ----------
    name : str
        As the specification has it, without ``Op``.
    head : str
        ``"tr"`` if an instruction begins with a type and a result, ``"r"`` with a result, ``""`` with neither.
    operands : str
        The operands after those: ``i`` an id, ``l`` a literal word; ``I`` and ``L`` any number of these.
    """

    name: str
    head: str
    operands: str

    def ids(self, operands: tuple[int, ...]) -> list[int]:
        """Return the positions of the operands that are ids."""
        last = len(self.operands) - 1
        if last < 0:
            return []
        return [k for k in range(len(operands)) if self.operands[min(k, last)] in "iI"]


_TABLE = """
0 Nop -,1 Undef tr ,3 Source - L,4 SourceExtension - L,5 Name - lL,6 MemberName - lL,7 String r L,8 Line - ill
10 Extension - L,11 ExtInstImport r L,12 ExtInst tr ilI,14 MemoryModel - ll,15 EntryPoint - liL,16 ExecutionMode - ilL
17 Capability - l,19 TypeVoid r,20 TypeBool r,21 TypeInt r ll,22 TypeFloat r lL,23 TypeVector r il
24 TypeMatrix r il,28 TypeArray r ii,29 TypeRuntimeArray r i,30 TypeStruct r I,32 TypePointer r li
33 TypeFunction r I,39 TypeForwardPointer - il,41 ConstantTrue tr,42 ConstantFalse tr,43 Constant tr L
44 ConstantComposite tr I,46 ConstantNull tr,48 SpecConstantTrue tr,49 SpecConstantFalse tr,50 SpecConstant tr L
51 SpecConstantComposite tr I,54 Function tr li,55 FunctionParameter tr,56 FunctionEnd -,57 FunctionCall tr iI
59 Variable tr lI,61 Load tr iL,62 Store - iiL,63 CopyMemory - iiL,65 AccessChain tr I,66 InBoundsAccessChain tr I
67 PtrAccessChain tr I,70 InBoundsPtrAccessChain tr I,71 Decorate - ilL,72 MemberDecorate - illL
77 VectorExtractDynamic tr ii,78 VectorInsertDynamic tr iii,79 VectorShuffle tr iiL,80 CompositeConstruct tr I
81 CompositeExtract tr iL,82 CompositeInsert tr iiL,83 CopyObject tr i,84 Transpose tr i,109 ConvertFToU tr i
110 ConvertFToS tr i,111 ConvertSToF tr i,112 ConvertUToF tr i,113 UConvert tr i,114 SConvert tr i,115 FConvert tr i
116 QuantizeToF16 tr i,117 ConvertPtrToU tr i,120 ConvertUToPtr tr i,124 Bitcast tr i,126 SNegate tr i
127 FNegate tr i,128 IAdd tr ii,129 FAdd tr ii,130 ISub tr ii,131 FSub tr ii,132 IMul tr ii,133 FMul tr ii
134 UDiv tr ii,135 SDiv tr ii,136 FDiv tr ii,137 UMod tr ii,138 SRem tr ii,139 SMod tr ii,140 FRem tr ii
141 FMod tr ii,142 VectorTimesScalar tr ii,143 MatrixTimesScalar tr ii,144 VectorTimesMatrix tr ii
145 MatrixTimesVector tr ii,146 MatrixTimesMatrix tr ii,147 OuterProduct tr ii,148 Dot tr ii,154 Any tr i,155 All tr i
156 IsNan tr i,157 IsInf tr i,164 LogicalEqual tr ii,165 LogicalNotEqual tr ii,166 LogicalOr tr ii
167 LogicalAnd tr ii,168 LogicalNot tr i,169 Select tr iii,170 IEqual tr ii,171 INotEqual tr ii
172 UGreaterThan tr ii,173 SGreaterThan tr ii,174 UGreaterThanEqual tr ii,175 SGreaterThanEqual tr ii
176 ULessThan tr ii,177 SLessThan tr ii,178 ULessThanEqual tr ii,179 SLessThanEqual tr ii,180 FOrdEqual tr ii
181 FUnordEqual tr ii,182 FOrdNotEqual tr ii,183 FUnordNotEqual tr ii,184 FOrdLessThan tr ii
185 FUnordLessThan tr ii,186 FOrdGreaterThan tr ii,187 FUnordGreaterThan tr ii,188 FOrdLessThanEqual tr ii
189 FUnordLessThanEqual tr ii,190 FOrdGreaterThanEqual tr ii,191 FUnordGreaterThanEqual tr ii
194 ShiftRightLogical tr ii,195 ShiftRightArithmetic tr ii,196 ShiftLeftLogical tr ii,197 BitwiseOr tr ii
198 BitwiseXor tr ii,199 BitwiseAnd tr ii,200 Not tr i,201 BitFieldInsert tr iiii,202 BitFieldSExtract tr iii
203 BitFieldUExtract tr iii,204 BitReverse tr i,205 BitCount tr i,224 ControlBarrier - iii,225 MemoryBarrier - ii
227 AtomicLoad tr iii,228 AtomicStore - iiii,229 AtomicExchange tr iiii,230 AtomicCompareExchange tr iiiiii
232 AtomicIIncrement tr iii,233 AtomicIDecrement tr iii,234 AtomicIAdd tr iiii,235 AtomicISub tr iiii
236 AtomicSMin tr iiii,237 AtomicUMin tr iiii,238 AtomicSMax tr iiii,239 AtomicUMax tr iiii,240 AtomicAnd tr iiii
241 AtomicOr tr iiii,242 AtomicXor tr iiii,245 Phi tr I,246 LoopMerge - llL,247 SelectionMerge - lL,248 Label r
249 Branch - l,250 BranchConditional - illL,251 Switch - iL,253 Return -,254 ReturnValue - i,255 Unreachable -
317 NoLine -,321 ExecutionModeId - ilI,331 ExecutionModeId - ilI,332 DecorateId - ilI
333 GroupNonUniformElect tr i,334 GroupNonUniformAll tr ii,335 GroupNonUniformAny tr ii
336 GroupNonUniformAllEqual tr ii,337 GroupNonUniformBroadcast tr iii,338 GroupNonUniformBroadcastFirst tr ii
339 GroupNonUniformBallot tr ii,340 GroupNonUniformInverseBallot tr ii,341 GroupNonUniformBallotBitExtract tr iii
342 GroupNonUniformBallotBitCount tr ili,343 GroupNonUniformBallotFindLSB tr ii,344 GroupNonUniformBallotFindMSB tr ii
345 GroupNonUniformShuffle tr iii,346 GroupNonUniformShuffleXor tr iii,347 GroupNonUniformShuffleUp tr iii
348 GroupNonUniformShuffleDown tr iii,349 GroupNonUniformIAdd tr iliI,350 GroupNonUniformFAdd tr iliI
351 GroupNonUniformIMul tr iliI,352 GroupNonUniformFMul tr iliI,353 GroupNonUniformSMin tr iliI
354 GroupNonUniformUMin tr iliI,355 GroupNonUniformFMin tr iliI,356 GroupNonUniformSMax tr iliI
357 GroupNonUniformUMax tr iliI,358 GroupNonUniformFMax tr iliI,359 GroupNonUniformBitwiseAnd tr iliI
360 GroupNonUniformBitwiseOr tr iliI,361 GroupNonUniformBitwiseXor tr iliI,362 GroupNonUniformLogicalAnd tr iliI
363 GroupNonUniformLogicalOr tr iliI,364 GroupNonUniformLogicalXor tr iliI
365 GroupNonUniformQuadBroadcast tr iii,366 GroupNonUniformQuadSwap tr iii,400 CopyLogical tr i
4450 SDot tr iiL,4451 UDot tr iiL,4452 SUDot tr iiL,5296 GroupNonUniformPartitionNV tr i
5632 DecorateString - ilL,5633 MemberDecorateString - illL,6035 AtomicFAddEXT tr iiii
"""

# Refused, but by name.
_OTHERS = {
    25: "TypeImage", 26: "TypeSampler", 27: "TypeSampledImage", 60: "ImageTexelPointer", 68: "ArrayLength",
    86: "SampledImage", 87: "ImageSampleImplicitLod", 88: "ImageSampleExplicitLod", 95: "ImageFetch", 98: "ImageRead",
    99: "ImageWrite", 149: "IAddCarry", 151: "UMulExtended", 152: "SMulExtended", 207: "DPdx", 208: "DPdy",
    4456: "TypeCooperativeMatrixKHR", 5341: "TypeAccelerationStructureKHR",
}  # fmt: skip


def _parsed() -> dict[int, Operation]:
    found = {}
    for entry in _TABLE.replace("\n", ",").split(","):
        if entry:
            number, name, head, *operands = [*entry.split(), ""]
            found[int(number)] = Operation(name, head.strip("-"), operands[0])
    return found


OPERATIONS = _parsed()
CODE = {operation.name: number for number, operation in OPERATIONS.items()}


def name_of(op: int) -> str:
    """Return an instruction's name with its prefix, ``OpIAdd``; for an unknown one its number."""
    name = OPERATIONS[op].name if op in OPERATIONS else _OTHERS.get(op, f" {op}")
    return f"Op{name}"
