// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
)

// Written is how far the writes of leaders went: what a view of the cluster has
// to show before a new leader decides anything upon it. Deletions do not count:
// what is still seen of an object that is gone leads to no decision that takes
// it for free.
type Written struct {
	// Complete says that nothing was written that Revisions does not name.
	Complete bool `json:"complete"`
	// Revisions are resourceVersions by resource, as in ciliumnodes.cilium.io.
	Revisions map[string]uint64 `json:"revisions,omitempty"`
}

// Handover tells a module of the term what leaders before it wrote.
type Handover interface {
	// Before returns the resourceVersion up to which leaders before this one
	// wrote objects of a resource. When that cannot be known, known is false:
	// only what is read from now on shows all of it. Before may wait for a write
	// of an earlier term of this process that got no answer.
	Before(ctx context.Context, resource schema.GroupVersionResource) (revision uint64, known bool, err error)
	// Again reports whether this process has led before, so that its streams are
	// warm.
	Again() bool
	// Saw tells the next leaders up to which resourceVersion a complete view
	// showed writes, where Before did not know.
	Saw(resource schema.GroupVersionResource, revision uint64)
}

// ledger remembers how far the writes of this process and of leaders before it
// went. It belongs to the process.
type ledger struct {
	mu         sync.Mutex
	terms      int  // opened so far
	complete   bool // of resources without an account nothing was written
	resources  map[string]*account
	unanswered time.Time // when the last write ended of which nobody knows what it did
}

// account is what the ledger knows of one resource.
type account struct {
	known    bool // nothing was written beyond revision, open writes excepted
	revision uint64
	open     map[Ref]time.Time // writes without an answer, since when
	creating int               // requests under way for objects that have no name yet
}

// close takes a request off the account.
func (a *account) close(ref Ref) {
	if ref.Name == "" {
		a.creating--
		return
	}
	delete(a.open, ref)
}

func newLedger() *ledger { return &ledger{resources: map[string]*account{}} }

// account is called with the lock held.
func (l *ledger) account(resource schema.GroupVersionResource) *account {
	name := resourceName(resource)
	a := l.resources[name]
	if a == nil {
		a = &account{known: l.complete, open: map[Ref]time.Time{}}
		l.resources[name] = a
	}
	return a
}

// begin begins a term. before is what another leader knows of all writes before
// it, nil if nobody else has led.
func (l *ledger) begin(before *Written) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.terms++
	if before != nil {
		l.inherit(*before)
	}
}

// inherit is called with the lock held.
func (l *ledger) inherit(w Written) {
	l.complete = w.Complete
	for name, a := range l.resources {
		_, named := w.Revisions[name]
		a.known = w.Complete || named
	}
	for name, revision := range w.Revisions {
		group := schema.ParseGroupResource(name)
		a := l.account(group.WithVersion(""))
		a.known, a.revision = true, max(a.revision, revision)
	}
}

// sent notes that a request is on its way. It returns since when an earlier one
// for the same object has no answer, zero if there is none.
func (l *ledger) sent(ref Ref) (earlier time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(ref.Resource)
	if ref.Name == "" {
		a.creating++
		return time.Time{}
	}
	earlier = a.open[ref]
	a.open[ref] = time.Now()
	return earlier
}

// refused notes that a request changed nothing; an earlier one, if there is one,
// still may.
func (l *ledger) refused(ref Ref, earlier time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(ref.Resource)
	a.close(ref)
	if !earlier.IsZero() {
		a.open[ref] = earlier
	}
}

// stored notes how an object is on the server. An earlier request for it cannot
// change it any more: it would conflict.
func (l *ledger) stored(ref Ref, obj *unstructured.Unstructured) {
	revision, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		l.blur(ref)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(ref.Resource)
	a.close(ref)
	a.revision = max(a.revision, revision)
}

// missed notes that a request got no answer, or one that says little. What it may
// have created has a name that nobody knows.
func (l *ledger) missed(ref Ref) {
	if ref.Name == "" {
		l.blur(ref)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unanswered = time.Now()
}

// blur notes a request that did something, nobody knows what.
func (l *ledger) blur(ref Ref) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(ref.Resource)
	a.close(ref)
	a.known = false
}

// openWrites are the writes without an answer, with the time when they were sent.
func (l *ledger) openWrites() map[Ref]time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[Ref]time.Time{}
	for _, a := range l.resources {
		if a.known { // else they make no difference
			maps.Copy(all, a.open)
		}
	}
	return all
}

// look returns what is known of a resource, and a write of it that is open.
func (l *ledger) look(resource schema.GroupVersionResource) (revision uint64, known bool, open *Ref, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(resource)
	for ref, at := range a.open {
		return a.revision, a.known, &ref, at
	}
	return a.revision, a.known, nil, time.Time{}
}

// saw notes a complete view.
func (l *ledger) saw(resource schema.GroupVersionResource, revision uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(resource)
	a.known, a.revision = true, max(a.revision, revision)
}

// written is what the next leader has to see.
func (l *ledger) written() Written {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := Written{Complete: l.complete, Revisions: map[string]uint64{}}
	for name, a := range l.resources {
		if a.known && len(a.open)+a.creating == 0 {
			w.Revisions[name] = a.revision
		} else {
			w.Complete = false
		}
	}
	return w
}

func resourceName(r schema.GroupVersionResource) string { return r.GroupResource().String() }

// refOf reads the path of a request for an object or a collection. An API server
// may have its API below a path of its own.
func refOf(path string) (Ref, bool) {
	for _, start := range []string{"/apis/", "/api/"} {
		if i := strings.Index(path, start); i >= 0 {
			path = path[i:]
			break
		}
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var ref Ref
	switch {
	case len(parts) > 2 && parts[0] == "api":
		ref.Resource.Version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		ref.Resource.Group, ref.Resource.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return Ref{}, false
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		ref.Namespace, parts = parts[1], parts[2:]
	}
	ref.Resource.Resource = parts[0]
	if len(parts) > 1 {
		ref.Name = parts[1]
	}
	if len(parts) > 2 {
		ref.Subresource = parts[2]
	}
	return ref, true
}

// receipt is how a client tells the door that it reads the answer of a write,
// and gets back what the door knows of it.
type receipt struct {
	ref   *Ref           // nil for a write that changed nothing
	write *explain.Write // nil for one that is noted already
}

type receiptKey struct{}

func withReceipt(ctx context.Context) (context.Context, *receipt) {
	r := &receipt{}
	return context.WithValue(ctx, receiptKey{}, r), r
}

func receiptOf(req *http.Request) *receipt {
	r, _ := req.Context().Value(receiptKey{}).(*receipt)
	return r
}

// record keeps the books of a request around its round trip.
func (l *ledger) record(req *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
	ref, ok := refOf(req.URL.Path)
	if !ok || req.Method == http.MethodDelete {
		return send()
	}
	earlier := l.sent(ref)
	resp, err := send()
	r := receiptOf(req)
	switch {
	case err != nil || resp.StatusCode >= http.StatusInternalServerError:
		l.missed(ref)
	case resp.StatusCode >= http.StatusMultipleChoices:
		l.refused(ref, earlier)
	case r == nil:
		l.blur(ref) // as other clients write
	default:
		r.ref = &ref
	}
	return resp, err
}

// sign ends what the door began, with the object that the client has read.
func (r *receipt) sign(d *door, obj *unstructured.Unstructured, err error) {
	switch {
	case r.ref == nil:
	case err == nil:
		d.ledger.stored(*r.ref, obj)
	default:
		d.ledger.blur(*r.ref)
	}
	if r.write == nil {
		return
	}
	if err == nil {
		r.write.Name, r.write.Revision = obj.GetName(), obj.GetResourceVersion()
	}
	d.book.Wrote(*r.write)
}

// handover implements Handover for one module.
type handover struct {
	ledger *ledger
	client Client
}

func newHandover(_ cell.Scope, d *door, c Client) Handover { return &handover{d.ledger, c} }

func (h *handover) Before(ctx context.Context, resource schema.GroupVersionResource) (uint64, bool, error) {
	for {
		revision, known, open, since := h.ledger.look(resource)
		if open == nil || !known {
			return revision, known, nil
		}
		if err := h.resolve(ctx, *open, since); err != nil {
			return 0, false, err
		}
	}
}

// resolve finds out what became of a write without an answer.
func (h *handover) resolve(ctx context.Context, ref Ref, since time.Time) error {
	if !job.Sleep(ctx, settleTime-time.Since(since)) {
		return context.Cause(ctx)
	}
	obj, err := h.client.Get(ctx, ref)
	switch {
	case errors.IsNotFound(err):
		h.ledger.refused(ref, time.Time{})
	case err != nil:
		return fmt.Errorf("finding out whether %s was written: %w", ref, err)
	default:
		h.ledger.stored(ref, obj)
	}
	return nil
}

func (h *handover) Again() bool {
	h.ledger.mu.Lock()
	defer h.ledger.mu.Unlock()
	return h.ledger.terms > 1
}

func (h *handover) Saw(resource schema.GroupVersionResource, revision uint64) {
	h.ledger.saw(resource, revision)
}
