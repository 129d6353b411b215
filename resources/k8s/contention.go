// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skep-operator/skep/runtime/health"
)

// Two writers that undo each other's changes keep the API server busy for ever, and
// each of them believes that all is well. So it is noticed when a change has to be made
// again that was made before: the fields are not as they were written, or the object
// that was created is gone. The first repetitions cost nothing; then each write is
// followed by a pause that doubles, and the module is degraded until the change has
// lasted for some time. Fields that are as this operator wrote them last, and an object
// of another uid, are no repetition.
const (
	freeRepetitions   = 4
	firstRepetition   = time.Second
	longestRepetition = 5 * time.Minute
	// recurrenceWindow is how long a change is remembered.
	recurrenceWindow = 10 * time.Minute
	// keptRecurrences bounds what is remembered: one takes some 100 bytes.
	keptRecurrences = 8192
	// leastCalm is how long a change has to last for the contention to be over.
	leastCalm = time.Minute
)

// ContentionError is a write that was not sent: another writer undoes the same change
// again and again.
type ContentionError struct {
	Ref   Ref
	Field string // "" for an object that is deleted after each creation
	// Writer is the field manager that last changed the object, beside this operator,
	// "" if it is not known.
	Writer string
	Times  int // how often the change was undone
	Until  time.Time
	// Dropped says that the change is undone as it is written, by a webhook, or by an
	// installed definition that cannot be looked up.
	Dropped bool
	// Churns says that the object is changed, or deleted and created, again and again, whatever
	// the reason.
	Churns bool
}

func (e *ContentionError) Error() string {
	by := "another writer"
	if e.Writer != "" {
		by = fmt.Sprintf("another writer (last %q)", e.Writer)
	}
	what := fmt.Sprintf("%s undoes the change of %s in %s", by, e.Field, e.Ref)
	switch {
	case e.Churns:
		what = fmt.Sprintf("%s changes again and again, since what it is made of does, or another client creates it after each delete", e.Ref)
	case e.Dropped:
		what = fmt.Sprintf("a mutating webhook, or the installed definition, drops the change of %s in %s", e.Field, e.Ref)
	case e.Field == "":
		what = fmt.Sprintf("another client deletes %s after each creation", e.Ref)
	}
	return fmt.Sprintf("%s, %d times so far; the next attempt is not before %s", what, e.Times, e.Until.UTC().Format(time.RFC3339))
}

// pauseOf is the pause after a change that was undone so often.
func pauseOf(undone int) time.Duration {
	if undone <= freeRepetitions {
		return 0
	}
	return min(firstRepetition<<min(undone-freeRepetitions-1, 16), longestRepetition)
}

// calmAfter is how long a change that was undone so often has to last for the contention
// to be over.
func calmAfter(undone int) time.Duration { return max(leastCalm, 2*pauseOf(undone)) }

// digest is half of a SHA-256: enough for what is compared with a few thousand others.
type digest [sha256.Size / 2]byte

// digestOf identifies what its parts say.
func digestOf(parts ...any) digest {
	text, err := json.Marshal(parts)
	if err != nil { // of parts that were read from JSON there is none
		text = fmt.Append(nil, parts...)
	}
	sum := sha256.Sum256(text)
	return digest(sum[:])
}

// changed is what is remembered of a change.
type changed struct {
	values   digest // of the fields, as stored
	revision string // of the object, as stored
	at       time.Time
	undone   int
	until    time.Time
	dropped  bool
	unknown  bool // whether the last attempt was stored
}

// contention remembers the changes that all modules have made. It belongs to the
// process.
type contention struct {
	mu       sync.Mutex
	now, old map[digest]changed // since the last turn, and before
	turned   time.Time
	churn    *churn
}

func newContention() *contention {
	return &contention{now: map[digest]changed{}, turned: time.Now(), churn: newChurn()}
}

// reset forgets all: another leader may have written since.
func (c *contention) reset() {
	c.churn.reset()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.old, c.turned = map[digest]changed{}, nil, time.Now()
}

// recall returns what is remembered of a change.
func (c *contention) recall(key digest) (was changed, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was, ok = c.now[key]; !ok {
		was, ok = c.old[key]
	}
	return was, ok && time.Since(was.at) < recurrenceWindow
}

func (c *contention) remember(key digest, is changed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.now) >= keptRecurrences || time.Since(c.turned) > recurrenceWindow {
		c.now, c.old, c.turned = map[digest]changed{}, c.now, time.Now()
	}
	c.now[key] = is
}

func (c *contention) forget(key digest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.now, key)
	delete(c.old, key)
}

// recurrence is a write that is about to be made, perhaps not for the first time. A nil
// recurrence is not followed.
type recurrence struct {
	report *contentionReport
	ref    Ref
	object *unstructured.Unstructured // before the write, nil if it was not read
	fields []followed
	// droppedField is one that the response did not show.
	droppedField string
}

// followed is a field of a write. Each is followed by itself: one write may set what
// another one clears.
type followed struct {
	key    digest
	name   string                                  // "" for an object that is deleted after each creation
	value  func(*unstructured.Unstructured) digest // of the object as stored
	was    changed
	undone bool // since it was written last
}

func (r *contentionReport) follow(ref Ref, object *unstructured.Unstructured, fields []followed, undone func(followed) bool) *recurrence {
	if r == nil || len(fields) == 0 {
		return nil
	}
	for i := range fields {
		f := &fields[i]
		var ok bool
		if f.was, ok = r.contention.recall(f.key); ok {
			f.undone = !f.was.unknown && (f.was.dropped || undone(*f))
		}
		if time.Since(f.was.at) > calmAfter(f.was.undone) && f.was.undone > freeRepetitions {
			f.was.undone = 0 // the change has lasted
		}
	}
	return &recurrence{report: r, ref: ref, object: object, fields: fields}
}

// creation follows the creation of an object. One that was created before, and has to
// be created again, was deleted by another client. If its owner is another one, that was
// the garbage collector, with the owner.
func (r *contentionReport) creation(ref Ref, sent *unstructured.Unstructured) *recurrence {
	if ref.Name == "" {
		return nil
	}
	created := followed{key: digestOf("create", ref), value: ownersOf}
	return r.follow(ref, nil, []followed{created}, func(f followed) bool { return f.was.values == ownersOf(sent) })
}

func ownersOf(obj *unstructured.Unstructured) digest {
	var all []any
	for _, owner := range obj.GetOwnerReferences() {
		all = append(all, owner.UID)
	}
	return digestOf(all...)
}

// deletion says that an object was deleted by this operator.
func (r *contentionReport) deletion(ref Ref) {
	if r != nil {
		r.contention.forget(digestOf("create", ref))
	}
}

type sharedFields struct{}

// WithSharedFields returns a context for Modify where other clients change the same fields by agreement, as agents
// release what an operator has allocated. That the fields are not as they were written is no contention then (K8S-9 in
// docs/wire/k8s.md).
func WithSharedFields(ctx context.Context) context.Context {
	return context.WithValue(ctx, sharedFields{}, true)
}

// modification follows the change of fields.
func (r *contentionReport) modification(ctx context.Context, ref Ref, current *unstructured.Unstructured, changes []fieldChange) *recurrence {
	if ctx.Value(sharedFields{}) != nil {
		return nil
	}
	var fields []followed
	for _, c := range changes {
		for _, path := range c.leaves() {
			fields = append(fields, followed{
				key: digestOf("change", ref, current.GetUID(), path), name: path.String(),
				value: func(obj *unstructured.Unstructured) digest { return digestOf(path.at(obj.Object)) },
			})
		}
	}
	return r.follow(ref, current, fields, func(f followed) bool { return f.was.values != f.value(current) })
}

// replacement follows the replacement of an object. Where the same content is to be
// stored again, and another revision was stored meanwhile, it was undone.
func (r *contentionReport) replacement(ref Ref, sent *unstructured.Unstructured) *recurrence {
	metadata, _ := sent.Object["metadata"].(map[string]any)
	content, metadata := maps.Clone(sent.Object), maps.Clone(metadata)
	delete(metadata, "resourceVersion")
	content["metadata"] = metadata
	is := digestOf(content)
	whole := followed{key: digestOf("replace", ref, sent.GetUID()), name: "its content", value: func(*unstructured.Unstructured) digest { return is }}
	return r.follow(ref, nil, []followed{whole}, func(f followed) bool { return f.was.values == is && f.was.revision != sent.GetResourceVersion() })
}

// namesOf names fields.
func namesOf(fields []followed) string {
	const most = 3
	var names []string
	for i, f := range fields {
		if i == most {
			names = append(names, fmt.Sprintf("%d more", len(fields)-most))
			break
		}
		names = append(names, f.name)
	}
	return strings.Join(names, ", ")
}

// fieldManager is what the API server calls this operator, after the User-Agent.
const fieldManager = "skep"

// otherWriter is the field manager that changed an object last, beside this operator,
// and not before since. One that only removes fields is not among the managers.
func otherWriter(obj *unstructured.Unstructured, since time.Time) string {
	raw, _, _ := unstructured.NestedSlice(obj.Object, "metadata", "managedFields")
	var name string
	last := since.Truncate(time.Second)
	for _, r := range raw {
		var e metav1.ManagedFieldsEntry
		m, _ := r.(map[string]any)
		delete(m, "fieldsV1")
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m, &e); err != nil || e.Manager == fieldManager || e.Time == nil {
			continue
		}
		if !e.Time.Time.Before(last) {
			name, last = e.Manager, e.Time.Time
		}
	}
	return name
}

// await returns a ContentionError until the pause after the last attempt is over.
func (a *recurrence) await() error {
	if a == nil {
		return nil
	}
	now := time.Now()
	fought := slices.DeleteFunc(slices.Clone(a.fields), func(f followed) bool { return !f.undone || !now.Before(f.was.until) })
	if len(fought) == 0 {
		return nil
	}
	return a.error(fought)
}

// error is about fields that are undone; was is what is remembered of them now.
func (a *recurrence) error(fought []followed) *ContentionError {
	e := &ContentionError{Ref: a.ref, Field: namesOf(fought)}
	since := fought[0].was.at
	for _, f := range fought {
		e.Times = max(e.Times, f.was.undone)
		e.Dropped = e.Dropped || f.was.dropped
		if f.was.until.After(e.Until) {
			e.Until = f.was.until
		}
		if f.was.at.Before(since) {
			since = f.was.at
		}
	}
	switch {
	case e.Dropped && a.droppedField != "":
		e.Field = a.droppedField
	case !e.Dropped && a.object != nil:
		e.Writer = otherWriter(a.object, since)
	}
	return e
}

// stored notes that the write was made.
func (a *recurrence) stored(obj *unstructured.Unstructured) { a.record(obj) }

// dropped records that the response did not show a field of the write.
func (a *recurrence) dropped(obj *unstructured.Unstructured, field string) {
	if a != nil {
		a.droppedField = field
		a.record(obj)
	}
}

// drops reports whether the response did not show a field. It may be shown by a field that contains it.
func (a *recurrence) drops(f followed) bool {
	return a.droppedField != "" && (len(a.fields) == 1 || f.name == a.droppedField || strings.HasPrefix(f.name, a.droppedField+"."))
}

// lost records that it is unknown whether the write was made.
func (a *recurrence) lost() {
	if a == nil {
		return
	}
	for _, f := range a.fields {
		is := f.was
		is.unknown, is.at = true, time.Now()
		a.report.contention.remember(f.key, is)
	}
}

func (a *recurrence) record(obj *unstructured.Unstructured) {
	if a == nil {
		return
	}
	now := time.Now()
	var fought []followed
	for _, f := range a.fields {
		is := changed{values: f.value(obj), revision: obj.GetResourceVersion(), at: now, undone: f.was.undone, dropped: a.drops(f)}
		if f.undone {
			is.undone++
		}
		pause := pauseOf(is.undone)
		is.until = now.Add(pause)
		a.report.contention.remember(f.key, is)
		if f.undone && pause > 0 {
			since := f.was.at
			f.was = is
			f.was.at = since // of the write that was undone
			fought = append(fought, f)
		}
	}
	if len(fought) > 0 {
		a.report.repeated(fought, a.error(fought))
	}
}

// contentionReport sets the health of a module to which of its changes are undone. A nil
// report records none.
type contentionReport struct {
	contention *contention
	health     health.Reporter
	log        *slog.Logger

	mu     sync.Mutex
	fought map[digest]time.Time // changes that are undone, and when they have lasted long enough
	calm   *time.Timer
}

func newContentionReport(c *contention, h health.Reporter, log *slog.Logger) *contentionReport {
	return &contentionReport{contention: c, health: h.Child("contention"), log: log, fought: map[digest]time.Time{}}
}

// repeated records that fields were undone, and written again.
func (r *contentionReport) repeated(fought []followed, err *ContentionError) {
	keys := make([]digest, len(fought))
	for i, f := range fought {
		keys[i] = f.key
	}
	r.show(keys, calmAfter(err.Times), err)
}

// show has health name changes until they have lasted for so long.
func (r *contentionReport) show(keys []digest, calm time.Duration, err *ContentionError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.fought) == 0 {
		r.log.Warn("changes recur, pausing before each attempt", "object", err.Ref.String(), "error", err)
	}
	for _, key := range keys {
		r.fought[key] = time.Now().Add(calm)
	}
	are := "are undone"
	if err.Churns {
		are = "are undone or made"
	}
	r.health.Degraded(fmt.Sprintf("%d changes %s again and again, that of %s among them", len(r.fought), are, err.Ref), err)
	if r.calm == nil {
		r.calm = time.AfterFunc(calm, r.expire)
	}
}

// expire ends the contention over changes that have lasted.
func (r *contentionReport) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	var next time.Time
	for key, calm := range r.fought {
		switch {
		case !now.Before(calm):
			delete(r.fought, key)
		case next.IsZero() || calm.Before(next):
			next = calm
		}
	}
	if next.IsZero() {
		r.calm = nil
		r.health.Remove()
		r.log.Info("changes are not undone any more")
		return
	}
	r.calm.Reset(next.Sub(now))
}

// stop ends the report.
func (r *contentionReport) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calm != nil {
		r.calm.Stop()
	}
}
