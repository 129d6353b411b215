// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// markSynced starts the allocation of numbers. Before, no number is chosen, since existing objects come first.
func (t *table) markSynced() {
	t.synced = true
	for _, s := range t.sets {
		t.updateChoice(s)
		if s.pods > 0 || t.needsWrite(s) {
			t.enqueue(s)
		}
	}
}

// updateChoice chooses one of the objects of a set with pods, and releases a number without need. A set keeps its
// number as long as the object exists.
func (t *table) updateChoice(s *set) {
	if t.synced && !s.inFlight && !s.exists {
		inUse := s.number != 0 && t.inUseByEndpoint(s.number)
		best := s.preferredObject()
		switch {
		case inUse && !s.fresh: // endpoints keep using it: it is recreated
		case s.pods > 0 && best != nil:
			if best.number != s.number {
				t.unchoose(s)
				t.choose(s, best.number)
			}
		case s.pods == 0 || inUse: // it is not needed, or in use with other labels
			t.unchoose(s)
		}
	}
	if s.pods == 0 && len(s.templates) == 0 && len(s.objects) == 0 && s.number == 0 && !s.inFlight {
		delete(t.awaitingNumber, s)
		if t.sets[s.labels] == s {
			delete(t.sets, s.labels)
			t.idle -= s.idleSize()
		}
	}
}

// preferredObject is the object that a set chooses: the oldest unedited one, else the oldest. An edited one that is
// chosen already is kept.
func (s *set) preferredObject() *object {
	var best *object
	for _, o := range s.objects {
		switch {
		case !o.edited():
			return o
		case best == nil || o.number == s.number:
			best = o
		}
	}
	return best
}

// editedObject is an object of the set whose labels have to be restored, nil for none. The chosen one comes first.
func (s *set) editedObject() *object {
	var edited *object
	for _, o := range s.objects {
		if o.edited() && (edited == nil || o.number == s.number) {
			edited = o
		}
	}
	return edited
}

func (t *table) choose(s *set, number identity.Number) {
	t.numbers.hold(number)
	t.owners[number] = s
	o := t.objects[number]
	s.number, s.exists = number, o != nil && o.set == s && !o.edited()
	delete(t.awaitingNumber, s)
	t.recordChanged(s)
}

func (t *table) unchoose(s *set) {
	if s.number == 0 {
		return
	}
	delete(t.owners, s.number)
	t.numbers.release(s.number)
	if s.uncertain { // a late request may still create it
		t.numbers.quarantine(s.number, t.now)
	}
	s.number, s.exists, s.uncertain, s.fresh = 0, false, false, false
	t.recordChanged(s)
}

// objectAdded is called when a set has got another object.
func (t *table) objectAdded(s *set, o *object) {
	if s.number == o.number {
		s.exists, s.uncertain, s.fresh = !o.edited(), false, false
		t.recordChanged(s)
	}
	t.updateChoice(s)
	if o.edited() {
		t.enqueue(s)
	}
}

// objectRemoved is called when a set has lost an object. It is recreated if endpoints have its number.
func (t *table) objectRemoved(s *set, o *object) {
	if s.number == o.number {
		s.exists = false
		t.recordChanged(s)
	}
	if t.synced && s.number == 0 && len(s.objects) == 0 && t.owners[o.number] == nil && t.inUseByEndpoint(o.number) {
		t.choose(s, o.number) // no pod has these labels, and endpoints keep using it
	}
	t.updateChoice(s)
	t.enqueueIfNeeded(s)
}

// hasObject reports whether the object of the chosen number exists.
func (t *table) hasObject(s *set) bool {
	o := t.objects[s.number]
	return o != nil && o.set == s
}

// lacksObject reports whether an object of the set has to be created.
func (t *table) lacksObject(s *set) bool { return !t.hasObject(s) && (s.pods > 0 || s.number != 0) }

// needsWrite reports whether an object of the set has to be created or restored.
func (t *table) needsWrite(s *set) bool { return t.lacksObject(s) || s.editedObject() != nil }

func (t *table) enqueueIfNeeded(s *set) {
	if t.needsWrite(s) {
		t.enqueue(s)
	}
}

// action is the next write of a set.
type action struct {
	number identity.Number // of the object to create or restore; 0 for none
	edited *object         // the object to restore; nil to create one
	reason string          // why there is no write
	waited time.Duration   // since it was enqueued
	pause  time.Duration   // before it is looked at again, if there is no write
}

// nextAction is the next write of a set. Its request is in flight until a record method or postpone is called.
func (t *table) nextAction(of slim.Labels) (todo action) {
	s := t.sets[of]
	if s == nil {
		return action{reason: noPod}
	}
	if !s.queuedAt.IsZero() {
		todo.waited, s.queuedAt = t.now.Sub(s.queuedAt), time.Time{}
	}
	t.updateChoice(s)
	switch edited := s.editedObject(); {
	case !t.lacksObject(s) && edited != nil:
		s.inFlight = true
		now := *edited
		todo.number, todo.edited = now.number, &now
	case s.exists:
		todo.reason = fmt.Sprintf("identity %d exists", s.number)
	case !t.lacksObject(s):
		todo.reason = noPod
	case s.number == 0 && t.brakedFor(s) > 0:
		todo.reason, todo.pause = braked, t.brakedFor(s)
		if !t.isScarce() {
			todo.reason = brakedLarge
			t.largeHeld = largeHeld{podNamespace(s.labels), t.now}
		}
		if !s.isOrdinary() { // its labels are not kept for long once no pod has them
			todo.pause = min(todo.pause, largePause)
		}
		s.queuedAt = t.now.Add(-todo.waited)
	case s.number == 0 && !t.allocateNumber(s):
		todo.reason = noneFree
	default:
		s.inFlight = true
		todo.number = s.number
	}
	return todo
}

// postpone reverts nextAction without a request.
func (t *table) postpone(of slim.Labels, todo action) {
	s := t.sets[of] // kept while in flight
	s.inFlight, s.queuedAt = false, t.now.Add(-todo.waited)
}

// Reasons why nothing is written for a set.
const (
	noPod        = "none: no pod has these labels any more"
	madeByAgents = "none: the options leave identities to agents"
	noneFree     = "waits: no number of the cluster's range is free"
	braked       = "waits: numbers are scarce, and the pods of the namespace change their labels so often that it gets one a second"
	brakedLarge  = "waits: the pods of the namespace have large labels, and change them so often that it gets a new identity now and then"
)

// allocateNumber allocates a free number to a set.
func (t *table) allocateNumber(s *set) bool {
	for {
		number, ok := t.numbers.pick(t.random)
		switch {
		case !ok:
			t.awaitingNumber[s] = true
			return false
		case t.inUseByEndpoint(number): // its object was deleted, and endpoints keep using it
			t.numbers.quarantine(number, t.now)
		default:
			t.choose(s, number)
			s.fresh = true
			return true
		}
	}
}

// recordCreate records the object with the number of nextAction in a response: created by this leader, or by another
// client, with any labels.
func (t *table) recordCreate(of slim.Labels, now observation, ours bool) {
	s := t.sets[of] // kept while in flight
	s.inFlight = false
	o := t.objects[now.number]
	switch {
	case o == nil || o.revision < now.revision:
		original := slim.Labels{}
		if ours {
			original = of
		}
		t.recordResponse(now, original)
	case ours && o.uid == now.uid && o.set != s: // the cache was faster
		t.reassign(o, s)
	}
	if o = t.objects[now.number]; ours && o != nil && o.uid == now.uid {
		o.createdHere = true
	}
	t.countCollisions(s, o)
	t.updateChoice(s)
	t.enqueueIfNeeded(s)
}

// countCollisions counts the numbers in a row that were allocated to a set and exist with other labels.
func (t *table) countCollisions(s *set, o *object) {
	if o != nil && o.set == s {
		s.collisions = 0
	} else {
		s.collisions++
	}
}

// recordCreateFailure records that a request failed or has an unknown result. The next one has the same number: if the
// object exists by then, its labels decide.
func (t *table) recordCreateFailure(of slim.Labels) {
	s := t.sets[of]
	s.inFlight, s.uncertain = false, s.number != 0
	t.updateChoice(s)
}

// recordRestore records an identity in the response to its restore.
func (t *table) recordRestore(of slim.Labels, now observation) {
	t.sets[of].inFlight = false
	if o := t.objects[now.number]; o == nil || o.revision < now.revision {
		t.recordResponse(now, slim.Labels{})
	}
	if s := t.sets[of]; s != nil {
		t.updateChoice(s)
	}
}

// recordResponse records an identity in a response, before it is in the cache.
func (t *table) recordResponse(now observation, created slim.Labels) {
	t.recordObject(now, created)
	t.unconfirmed[now.number] = now.revision
}

// recordVanished records that an identity to be restored does not exist any more.
func (t *table) recordVanished(of slim.Labels, o object) {
	t.sets[of].inFlight = false
	t.deleteObject(o.number.String(), o.revision)
	if s := t.sets[of]; s != nil {
		t.updateChoice(s)
		t.enqueueIfNeeded(s)
	}
}

// recordRestoreFailure records that a restore failed or has an unknown result.
func (t *table) recordRestoreFailure(of slim.Labels) {
	s := t.sets[of]
	s.inFlight = false
	t.updateChoice(s)
}

// expireQuarantine releases numbers, and enqueues sets that wait for one.
func (t *table) expireQuarantine() {
	t.numbers.expire(t.now)
	if t.numbers.free() > 0 {
		for s := range t.awaitingNumber {
			t.enqueue(s)
		}
	}
}

// cardinality is the number of values of a label among identities.
type cardinality struct {
	label  string
	values int
}

// topLabels are the labels with the most values.
func (t *table) topLabels(most int) []cardinality {
	values := map[string]map[string]bool{}
	for _, o := range t.objects {
		if o.set == nil {
			continue
		}
		for label, value := range o.set.labels.All() {
			if values[label] == nil {
				values[label] = map[string]bool{}
			}
			values[label][value] = true
		}
	}
	all := make([]cardinality, 0, len(values))
	for _, label := range slices.Sorted(maps.Keys(values)) {
		all = append(all, cardinality{label, len(values[label])})
	}
	slices.SortStableFunc(all, func(a, b cardinality) int { return cmp.Compare(b.values, a.values) })
	return all[:min(most, len(all))]
}
