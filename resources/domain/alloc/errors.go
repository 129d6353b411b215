// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alloc

import (
	"errors"
	"fmt"
)

// Why nothing is allocated or added. Errors wrap one of these.
var (
	// ErrFull says that all ranges of the pool are in use.
	ErrFull = errors.New("the pool is full")
	// ErrNoRange says that the pool has no range, or none of this address family.
	ErrNoRange = errors.New("the pool has no range of this kind")
	// ErrOutOfRange says that what is asked for lies in no range of the pool.
	ErrOutOfRange = errors.New("not in a range of the pool")
	// ErrWithheld says that what is asked for is the reserved first or last address of a range, or withheld.
	ErrWithheld = errors.New("not to be allocated")
	// ErrTaken says that what is asked for is held; the error is a TakenError.
	ErrTaken = errors.New("held already")
	// ErrOverlap says that two ranges of a pool overlap; the error is an OverlapError.
	ErrOverlap = errors.New("ranges of a pool overlap")
	// ErrInvalid says that a range, block or address is not valid: zero, reversed, or of a wrong family or size.
	ErrInvalid = errors.New("invalid")
)

// TakenError says that something is not reserved or allocated since all of it or a part is held.
type TakenError[T fmt.Stringer, O comparable] struct {
	What  T // what was asked for
	Owner O // who asked for it
	Held  T // what is held; for blocks the lowest one that overlaps
	By    O // its owner; Owner itself, if it holds another block that overlaps
}

// Error implements error.
func (e *TakenError[T, O]) Error() string {
	return fmt.Sprintf("%s for %v: %s is held by %v", e.What, e.Owner, e.Held, e.By)
}

// Is makes errors.Is(err, ErrTaken) true.
func (*TakenError[T, O]) Is(target error) bool { return target == ErrTaken }

// OverlapError says that a range was not added to a pool since it overlaps one of that pool.
type OverlapError[R fmt.Stringer] struct {
	Range, With R
}

// Error implements error.
func (e *OverlapError[R]) Error() string { return fmt.Sprintf("%s overlaps %s", e.Range, e.With) }

// Is makes errors.Is(err, ErrOverlap) true.
func (*OverlapError[R]) Is(target error) bool { return target == ErrOverlap }
