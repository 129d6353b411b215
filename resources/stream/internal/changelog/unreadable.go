// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package changelog

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// What cannot be decoded is not absent. An object of which nothing can be decoded
// but its name keeps the state it had, or is not shown at all; one of which some
// fields cannot be decoded is shown with the others (slim.Undecoded).

// unreadable is an object that could not be decoded, or not in whole.
type unreadable struct {
	fields slim.Undecoded // zero: none of its fields could be decoded
	err    error
}

func (u unreadable) whole() bool { return u.fields == (slim.Undecoded{}) }

// Unreadable is stream.Store.Unreadable.
func (l *Log[P]) Unreadable(fields ...string) []slim.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unreadableKeys(fields...)
}

// Hides is stream.Store.Hides.
func (l *Log[P]) Hides(key slim.Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range [...]slim.Key{key, unknownKey} {
		if u, known := l.unreadable[k]; known && u.whole() {
			return true
		}
	}
	return false
}

// HasNameless reports whether there is an object of which not even the name can be
// decoded. The caller has the lock.
func (l *Log[P]) HasNameless() bool {
	_, nameless := l.unreadable[unknownKey]
	return nameless
}

// MarkUnreadable records an object of which nothing could be decoded but its key.
// The caller has the lock.
func (l *Log[P]) MarkUnreadable(key slim.Key, err error) { l.markUnreadable(key, unreadable{err: err}) }

func (l *Log[P]) unreadableKeys(fields ...string) []slim.Key {
	keys := make([]slim.Key, 0, len(l.unreadable))
	for key, u := range l.unreadable {
		if u.whole() || u.fields.CannotDecode(fields...) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

// markUnreadable records an object that could not be decoded, or not in whole.
func (l *Log[P]) markUnreadable(key slim.Key, u unreadable) {
	l.logUnreadable(key, u)
	l.unreadable[key] = u
	l.reportUnreadable()
}

// clearUnreadable records that an object is readable, or gone.
func (l *Log[P]) clearUnreadable(key slim.Key) {
	if _, known := l.unreadable[key]; known {
		delete(l.unreadable, key)
		l.reportUnreadable()
	}
}

// replaceUnreadable records the objects of a complete state of which nothing could
// be decoded. The other unreadable objects are recorded already.
func (l *Log[P]) replaceUnreadable(whole map[slim.Key]error) {
	for key, err := range whole {
		l.logUnreadable(key, unreadable{err: err})
	}
	maps.DeleteFunc(l.unreadable, func(_ slim.Key, u unreadable) bool { return u.whole() })
	for key, err := range whole {
		l.unreadable[key] = unreadable{err: err}
	}
	l.reportUnreadable()
}

// maxLogged is how many unreadable objects of a stream the log names at a time.
const maxLogged = 100

// logUnreadable logs an object that was readable until now, or was not known.
func (l *Log[P]) logUnreadable(key slim.Key, u unreadable) {
	if _, known := l.unreadable[key]; !known && len(l.unreadable) < maxLogged {
		l.health.Warn("object cannot be decoded, or not in whole", "object", key.String(), "error", u.err)
	}
}

// examples is how many unreadable objects health names.
const examples = 3

// reportUnreadable sets the condition. Its examples stay the same as long as they
// are unreadable.
func (l *Log[P]) reportUnreadable() {
	l.examples = slices.DeleteFunc(l.examples, func(key slim.Key) bool {
		_, still := l.unreadable[key]
		return !still
	})
	for key := range l.unreadable {
		if len(l.examples) == min(examples, len(l.unreadable)) {
			break
		}
		if !slices.Contains(l.examples, key) {
			l.examples = append(l.examples, key)
		}
	}
	if len(l.examples) == 0 {
		l.health.Set("unreadable", nil)
		return
	}
	slices.SortFunc(l.examples, compareKeys)
	errs := make([]error, len(l.examples))
	for i, key := range l.examples {
		errs[i] = fmt.Errorf("%q: %w", key, l.unreadable[key].err)
	}
	l.health.Set("unreadable", fmt.Errorf("%d objects cannot be decoded, or not in whole; repair or delete them, at first: %w",
		len(l.unreadable), errors.Join(errs...)))
}
