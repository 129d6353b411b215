// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Occupied are the names under which objects could not be created, as there is another object, by what they are for. Each is tried again with back-off, from a
// second to five minutes, or five seconds as long as it may be the caller's own (K8S-28 in docs/wire/k8s.md): a namespace can have any number of objects with names that are known before, and a cache shows
// those alone that bear the labels of ours. The zero value is ready for use, and safe for concurrent use.
type Occupied struct {
	mu    sync.Mutex
	names map[slim.Key]map[string]occupation
}

// occupation is a name that another object has.
type occupation struct {
	times int
	until time.Time // of the next attempt
	own   bool
}

const (
	firstOccupiedPause   = time.Second
	longestOccupiedPause = 5 * time.Minute
	// ownAttempts is how often an object that has the labels of the caller's own is taken for one that its cache shows soon: about 20 s. Others may give theirs those labels.
	ownAttempts     = 6
	longestOwnPause = 5 * time.Second
)

// owner is whose an object is.
type owner int

const (
	ofNone    owner = iota // there is no object
	ofCaller               // the caller's cache is to show it soon
	ofAnother              // of something else
	ofUnknown              // the role does not allow to read it
)

// OccupiedError is the error with which an object is not created: another one has its name. The attempt has not failed; what else it has to do
// does not wait.
type OccupiedError struct {
	Ref k8s.Ref
	// Pause is the time to the next attempt.
	Pause time.Duration
	// Own says that the other one seems to be the caller's own, which its cache does not show yet, or that it is not known whose it is.
	Own bool
}

// Error implements error.
func (e *OccupiedError) Error() string {
	return fmt.Sprintf("%s exists, and was not made by the operator: delete it", e.Ref)
}

// Rest is how long the object of a name is not to be created, 0 if it may be.
func (o *Occupied) Rest(of slim.Key, name string) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return max(0, time.Until(o.names[of][name].until))
}

// Keep drops what is known of names that are not wanted any more, all of them if isWanted is nil.
func (o *Occupied) Keep(of slim.Key, isWanted func(name string) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.names[of], func(name string, _ occupation) bool { return isWanted == nil || !isWanted(name) })
	if len(o.names[of]) == 0 {
		delete(o.names, of)
	}
}

// Others are the names that others have by the last attempts, in their order.
func (o *Occupied) Others(of slim.Key) (names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, is := range o.names[of] {
		if !is.own {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// last is what the last attempt found, if there was one.
func (o *Occupied) last(of slim.Key, name string) (occupation, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	is, found := o.names[of][name]
	return is, found
}

// record keeps that a name is not free, and returns the error of the attempt.
func (o *Occupied) record(of slim.Key, ref k8s.Ref, by owner) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	is := o.names[of][ref.Name]
	pause := min(firstOccupiedPause<<min(is.times, 10), longestOccupiedPause)
	if by == ofCaller && is.times < ownAttempts {
		pause = min(pause, longestOwnPause)
	} else if by == ofCaller {
		by = ofAnother
	}
	is = occupation{times: is.times + 1, until: time.Now().Add(pause), own: by != ofAnother}
	if o.names == nil {
		o.names = map[slim.Key]map[string]occupation{}
	}
	if o.names[of] == nil {
		o.names[of] = map[string]occupation{}
	}
	o.names[of][ref.Name] = is
	return &OccupiedError{Ref: ref, Pause: pause, Own: is.own}
}

// Free drops what is known of a name, since an object that had it is gone.
func (o *Occupied) Free(of slim.Key, name string) {
	o.Keep(of, func(has string) bool { return has != name })
}

// CreateUnlessOccupied creates an object that is for a key. If another object has the name the error is an *[OccupiedError], also before the end of the pause, without a
// request. isOwn reports whether an object is one that the caller's cache shows. The role needs the permission to get objects; without it nothing is said of whose an
// object is.
func CreateUnlessOccupied[T any](ctx context.Context, c k8s.Client, o *Occupied, of slim.Key, ref k8s.Ref, want *T, isOwn func(*unstructured.Unstructured) bool) error {
	before, again := o.last(of, ref.Name)
	if rest := time.Until(before.until); again && rest > 0 {
		return &OccupiedError{Ref: ref, Pause: rest, Own: before.own}
	}
	if again { // a read costs the API server less than a write that it refuses
		switch by, err := ownerOf(ctx, c, ref, isOwn); {
		case err != nil:
			return err
		case by == ofNone:
			o.Free(of, ref.Name)
		case by != ofUnknown:
			return o.record(of, ref, by)
		}
	}
	_, err := k8s.Create(ctx, c, ref.Resource, want)
	if !k8s.IsAlreadyExists(err, ref) {
		if err == nil {
			o.Free(of, ref.Name)
		}
		return err
	}
	by, err := ownerOf(ctx, c, ref, isOwn)
	switch {
	case err != nil:
		return err
	case by == ofNone: // it has gone since
		by = ofCaller
	}
	return o.record(of, ref, by)
}

// ownerOf reads an object, and returns whose it is.
func ownerOf(ctx context.Context, c k8s.Client, ref k8s.Ref, isOwn func(*unstructured.Unstructured) bool) (owner, error) {
	has, err := c.Get(ctx, ref)
	switch {
	case k8s.IsNotFound(err, ref):
		return ofNone, nil
	case errors.As(err, new(*k8s.PermissionError)):
		return ofUnknown, nil
	case err != nil:
		return ofNone, err
	case isOwn(has):
		return ofCaller, nil
	}
	return ofAnother, nil
}

// SplitOccupied separates the errors of objects that are not created, since others have their names, from all others of a joined error.
func SplitOccupied(err error) (occupied []*OccupiedError, others error) {
	var rest []error
	switch e := err.(type) {
	case *OccupiedError:
		return []*OccupiedError{e}, nil
	case interface{ Unwrap() error }:
		some, other := SplitOccupied(e.Unwrap())
		occupied, rest = some, append(rest, other)
	case interface{ Unwrap() []error }:
		for _, e := range e.Unwrap() {
			some, other := SplitOccupied(e)
			occupied, rest = append(occupied, some...), append(rest, other)
		}
	}
	if len(occupied) == 0 {
		return nil, err
	}
	return occupied, errors.Join(rest...)
}
