// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import "strconv"

// Number is the numeric ID of a security identity. 0 is none.
type Number uint32

// String returns the number as in the names of objects and keys.
func (n Number) String() string { return strconv.FormatUint(uint64(n), 10) }

// ParseNumber parses the number in a name. A non-canonical name, such as one with a sign
// or a leading zero, is rejected.
func ParseNumber(name string) (Number, bool) {
	n, err := strconv.ParseUint(name, 10, 24)
	if err != nil || n == 0 || Number(n).String() != name {
		return 0, false
	}
	return Number(n), true
}

// Range is the range of numbers of a cluster, from Min to Max.
type Range struct{ Min, Max Number }

// firstFree is the first number after reserved and well-known identities.
const firstFree = 256

// RangeOf returns the numbers of the cluster with this id in a mesh of up to
// maxConnected clusters, 255 or 511.
func RangeOf(clusterID, maxConnected uint32) Range {
	bits := 16
	if maxConnected > 255 {
		bits = 15
	}
	r := Range{Min: Number(clusterID << bits), Max: Number(clusterID<<bits | (1<<bits - 1))}
	r.Min = max(r.Min, firstFree)
	return r
}

// Contains reports whether n is in the range.
func (r Range) Contains(n Number) bool { return r.Min <= n && n <= r.Max }

// Size returns the number of values in the range.
func (r Range) Size() int { return int(r.Max-r.Min) + 1 }
