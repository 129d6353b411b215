// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import "encoding/binary"

// Sets and references are kept as one interned string of length-prefixed parts:
// one word per object, one allocation per distinct value, equality by pointer.

func appendPart[S ~[]byte | ~string](b []byte, part S) []byte {
	b = binary.AppendUvarint(b, uint64(len(part)))
	return append(b, part...)
}

// nextPart cuts the first part off packed.
func nextPart(packed string) (part, rest string) {
	// Parts are below 128 bytes nearly always: one byte of length.
	size, n := uint64(packed[0]), 1
	if size >= 0x80 {
		var prefix [binary.MaxVarintLen64]byte
		size, n = binary.Uvarint(prefix[:copy(prefix[:], packed)])
	}
	end := n + int(size)
	return packed[n:end], packed[end:]
}
