"""Conversions between half and wider floats as LLVM IR, for processors without instructions for them.

The code that LLVM makes for such a processor calls functions of these names. libgcc has them, but not every process
loads libgcc, so an object file brings its own. Each function rounds to the nearest value, and ties to even.
"""

HALF_CONVERSIONS = """
define float @__extendhfsf2(half %h) {
  %bits = bitcast half %h to i16
  %wide = zext i16 %bits to i32
  %negative = and i32 %wide, 32768
  %sign = shl i32 %negative, 16
  %size = and i32 %wide, 32767
  %shifted = shl i32 %size, 13
  %small = bitcast i32 %shifted to float
  %number = fmul float %small, 0x46F0000000000000 ; 2^112: the exponents count from 15 and from 127
  %finite = bitcast float %number to i32
  %special = or i32 %shifted, 2139095040
  %is.special = icmp uge i32 %size, 31744
  %either = select i1 %is.special, i32 %special, i32 %finite
  %all = or i32 %either, %sign
  %f = bitcast i32 %all to float
  ret float %f
}

define half @__truncsfhf2(float %f) {
  %bits = bitcast float %f to i32
  %high = lshr i32 %bits, 16
  %sign = and i32 %high, 32768
  %size = and i32 %bits, 2147483647
  ; Numbers of 2^-14 and more: the other exponent, then to the nearest.
  %moved = sub i32 %size, 939524096
  %low = lshr i32 %moved, 13
  %odd = and i32 %low, 1
  %up = add i32 %odd, 4095
  %sum = add i32 %moved, %up
  %normal = lshr i32 %sum, 13
  ; Smaller ones: a sum with 0.5 has the bits of half in its last ten.
  %positive = bitcast i32 %size to float
  %raised = fadd float %positive, 5.0e-1
  %raised.bits = bitcast float %raised to i32
  %tiny = sub i32 %raised.bits, 1056964608
  %is.tiny = icmp ult i32 %size, 947912704
  %finite = select i1 %is.tiny, i32 %tiny, i32 %normal
  %is.large = icmp uge i32 %size, 1199570944
  %bounded = select i1 %is.large, i32 31744, i32 %finite
  %payload = lshr i32 %size, 13
  %kept = and i32 %payload, 1023
  %nan = or i32 %kept, 32256
  %is.nan = icmp ugt i32 %size, 2139095040
  %either = select i1 %is.nan, i32 %nan, i32 %bounded
  %all = or i32 %either, %sign
  %short = trunc i32 %all to i16
  %h = bitcast i16 %short to half
  ret half %h
}

define half @__truncdfhf2(double %d) {
  ; To float by rounding to odd, so that the second rounding sees which side the number was on.
  %f = fptrunc double %d to float
  %back = fpext float %f to double
  %size = call double @llvm.fabs.f64(double %d)
  %back.size = call double @llvm.fabs.f64(double %back)
  %above = fcmp ogt double %back.size, %size
  %exact = fcmp ueq double %back, %d
  %bits = bitcast float %f to i32
  %less = sub i32 %bits, 1
  %toward = select i1 %above, i32 %less, i32 %bits
  %odd = or i32 %toward, 1
  %chosen = select i1 %exact, i32 %bits, i32 %odd
  %rounded = bitcast i32 %chosen to float
  %h = call half @__truncsfhf2(float %rounded)
  ret half %h
}

declare double @llvm.fabs.f64(double)
"""
