"""Slang functions of scans, selections and sorts, as text.

A thread takes the numbers of a row from ``part * each`` on. Rounds of such functions do what one thread would do
alone: each part is added up or counted, the results of the parts are scanned in the same way, and each part begins
with what the parts before it had.
"""

from __future__ import annotations

_SPAN = """
    int at = part * each;
    let end = at + min(each, row.shape[0] - at);"""

# A float that takes each number in turn is 0.7 % off after 2^17 of them. Sums of so few numbers lose little; each is
# added to the sum before them, together with what that sum lost by rounding.
SCAN = (
    """
static const int SUMMED = 64;
// A sum of two numbers, and what its rounding lost; nothing of a sum that is not finite.
struct Sum
{{
    {of} value;
    {of} lost;
    [mutating]
    void add({of} x)
    {{
        let next = value + x;
        let given = next - value;
        let rest = (value - (next - given)) + (x - given);
        lost = rest == rest ? rest : {of}(0);
        value = next;
    }}
}}
{of} total(Tensor<{held}, 1> row, int part, int each)
{{"""
    + _SPAN
    + """
    Sum sum = {{ {of}(0), {of}(0) }};
    while (at < end)
    {{
        let stop = at + min(SUMMED, end - at);
        {of} few = sum.lost;
        for (; at < stop; ++at)
            few += {of}(row[at]);
        sum.add(few);
    }}
    return sum.value;
}}
void scan(Tensor<{held}, 1> row, Tensor<{of}, 1> sums, int part, int each, RWTensor<{into}, 1> result)
{{"""
    + _SPAN
    + """
    Sum sum = {{ part > 0 ? sums[part - 1] : {of}(0), {of}(0) }};
    for (; at < end; at += SUMMED)
    {{
        let before = sum.value;
        {of} few = sum.lost;
        let count = min(SUMMED, end - at);
        for (int k = 0; k < count; ++k)
        {{
            few += {of}(row[at + k]);
            result[at + k] = {into}(before + few);
        }}
        sum.add(few);
    }}
}}
"""
)
# Places of numbers that are not zero.
PLACES = (
    """
int count(Tensor<{held}, 1> row, int part, int each)
{{"""
    + _SPAN
    + """
    int found = 0;
    for (; at < end; ++at)
        found += {test} ? 1 : 0;
    return found;
}}
void places(Tensor<{held}, 1> row, Tensor<int, 1> sums, int part, int each, RWTensor<int, 1> result)
{{"""
    + _SPAN
    + """
    int found = part > 0 ? sums[part - 1] : 0;
    let last = sums[part];
    for (; at < end && found < last; ++at)
    {{
        // Without a branch, which would be guessed wrong half of the time.
        result[found] = at;
        found += {test} ? 1 : 0;
    }}
}}
"""
)
COORDINATE = "int coordinate(int place, int step, int size) { return place / step % size; }\n"
TAKE = "{held} take(Tensor<{held}, 2> rows, int row, int column) {{ return rows[row, column]; }}\n"
"""Rows and columns by number; elements of any type are taken scalar by scalar."""
PUT = "void put({held} x, int row, int column, RWTensor<{held}, 2> rows) {{ rows[row, column] = x; }}\n"

# Stable sorts by 4 bits at a time, from the lowest; `order` has the places of the numbers as sorted so far. Counts of
# a digit of all parts lie together, so that one scan of them tells where each part puts its first of each digit.
SORT = """{before}
{bits} key({held} x)
{{
    {key}
}}
{bits} keys({held} x) {{ return key(x); }}
void digits(Tensor<{bits}, 1> row, Tensor<int, 1> order, int part, int each, int shift, int parts,
    RWTensor<int, 1> counts)
{{
    int at = part * each;
    let end = at + min(each, row.shape[0] - at);
    int found[16] = {{}};
    for (; at < end; ++at)
        found[int(row[order[at]] >> shift & 15)] += 1;
    for (int digit = 0; digit < 16; ++digit)
        counts[digit * parts + part] = found[digit];
}}
void put(Tensor<{bits}, 1> row, Tensor<int, 1> order, Tensor<int, 1> sums, int part, int each, int shift, int parts,
    RWTensor<int, 1> result)
{{
    int at = part * each;
    let end = at + min(each, row.shape[0] - at);
    int next[16];
    for (int digit = 0; digit < 16; ++digit)
    {{
        let first = digit * parts + part;
        next[digit] = first > 0 ? sums[first - 1] : 0;
    }}
    for (; at < end; ++at)
    {{
        let place = order[at];
        let digit = int(row[place] >> shift & 15);
        result[next[digit]] = place;
        next[digit] += 1;
    }}
}}
"""
