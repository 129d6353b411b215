// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// L9: a write outlasts its caller, but neither for ever, nor the fence, nor the time
// that the caller gave it.
func TestAWriteOutlastsItsCaller(t *testing.T) {
	type key struct{}
	for name, test := range map[string]struct {
		leave func(end context.CancelFunc, fence *Fence)
		limit time.Duration // of the caller
		lasts time.Duration
		cause error
	}{
		"the caller leaves":       {func(end context.CancelFunc, _ *Fence) { end() }, time.Hour, answerTime, context.Canceled},
		"the fence shuts":         {func(_ context.CancelFunc, f *Fence) { f.Close() }, time.Hour, 0, ErrFenced},
		"the fence shuts, later":  {func(end context.CancelFunc, f *Fence) { end(); time.AfterFunc(time.Second, f.Close) }, time.Hour, time.Second, ErrFenced},
		"the caller's time is up": {func(context.CancelFunc, *Fence) {}, time.Second, time.Second, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fence := Unfenced()
				defer fence.Close()
				caller, end := context.WithTimeout(context.WithValue(t.Context(), key{}, "kept"), test.limit)
				defer end()
				write, done := outlast(caller, fence)
				defer done()
				began := time.Now()
				test.leave(end, fence)
				<-write.Done()
				if lasted := time.Since(began); lasted != test.lasts || !errors.Is(context.Cause(write), test.cause) {
					t.Errorf("it lasts %s, not %s; cause: %v", lasted, test.lasts, context.Cause(write))
				}
				if write.Value(key{}) != "kept" {
					t.Error("values are lost")
				}
			})
		})
	}
}

// L9.
func TestEndOfTermWaitsForWritesThatMayYetTakeEffect(t *testing.T) {
	for name, test := range map[string]struct {
		ago    time.Duration // of the last write without an answer; 0: there was none
		fenced time.Duration // after which the fence shuts
		waits  time.Duration
	}{
		"all answered":      {0, time.Hour, 0},
		"one just now":      {time.Nanosecond, time.Hour, settleTime - time.Nanosecond},
		"one some time ago": {2 * time.Second, time.Hour, settleTime - 2*time.Second},
		"one long ago":      {time.Minute, time.Hour, 0},
		"the fence shuts":   {time.Nanosecond, time.Second, time.Second},
		"the fence is shut": {time.Nanosecond, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &leasing{door: &door{log: slog.New(slog.DiscardHandler), ledger: newLedger()}}
				if test.ago > 0 {
					l.ledger.missed(Ref{Resource: configMaps, Name: "a"})
					time.Sleep(test.ago)
				}
				fence, cancel := context.WithTimeout(t.Context(), test.fenced)
				defer cancel()
				began := time.Now()
				l.Settle(fence)
				if waited := time.Since(began); waited != test.waits {
					t.Errorf("waited for %s, not %s", waited, test.waits)
				}
			})
		})
	}
}

// L9: which answers leave open what a write did, and for which writes that matters.
func TestWritesWithoutAnAnswer(t *testing.T) {
	refused := func(err *apierrors.StatusError) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(int(err.ErrStatus.Code))
			answer(w, err.ErrStatus)
		}
	}
	group := configMaps.GroupResource()
	for name, test := range map[string]struct {
		handle http.HandlerFunc
		open   bool
	}{
		"ok": {func(w http.ResponseWriter, _ *http.Request) {
			cm := newConfigMap("n", "a", nil)
			cm.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
			cm.ResourceVersion = "8"
			answer(w, cm)
		}, false},
		"conflict":  {refused(apierrors.NewConflict(group, "a", errors.New("changed"))), false},
		"forbidden": {refused(apierrors.NewForbidden(group, "a", errors.New("role"))), false},
		"internal":  {refused(apierrors.NewInternalError(errors.New("etcd"))), true},
		"timeout":   {refused(apierrors.NewTimeoutError("slow", 0)), true},
		"reset":     {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := openDoor(t, func(c *Config) { c.K8sAPIServer = serve(t, test.handle) })
			d.lead(t)
			d.ledger.begin(&Written{Complete: true})
			c := d.client(t, "m")
			_ = c.Delete(why(t), Ref{Resource: configMaps, Namespace: "n", Name: "a"}, Preconditions{UID: types.UID("u")})
			if d.ledger.unsettled() > 0 {
				t.Error("a deletion is waited for: its precondition says what it may delete")
			}
			cm := newConfigMap("n", "a", nil)
			cm.ResourceVersion = "7"
			stored, err := c.Update(why(t), configMaps, cm)
			if name == "ok" && (err != nil || stored.GetResourceVersion() != "8" || d.ledger.written().Revisions["configmaps"] != 8) {
				t.Errorf("stored %v (%v), the next leader is told %v", stored, err, d.ledger.written())
			}
			if open := d.ledger.unsettled() > 0; open != test.open {
				t.Errorf("open: %t (%v)", open, err)
			}
		})
	}
}

// L9: what became of writes whose answers were lost is found out for the next leader.
func TestEndOfTermLearnsWhatBecameOfWrites(t *testing.T) {
	var mu sync.Mutex
	stored := map[string]string{"kept": "7"} // resourceVersions by name
	encode := func(w http.ResponseWriter, name string) {
		if stored[name] == "" {
			w.WriteHeader(http.StatusNotFound)
			answer(w, apierrors.NewNotFound(configMaps.GroupResource(), name).ErrStatus)
			return
		}
		cm := newConfigMap("n", name, nil)
		cm.TypeMeta, cm.ResourceVersion = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, stored[name]
		answer(w, cm)
	}
	d := openDoor(t, func(c *Config) {
		c.K8sAPIServer = serve(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			name := path.Base(r.URL.Path)
			if r.Method == http.MethodGet {
				encode(w, name)
				return
			}
			if name != "gone" {
				stored[name] = "9"
			}
			panic(http.ErrAbortHandler)
		})
	})
	d.lead(t)
	d.ledger.begin(&Written{Complete: true, Revisions: map[string]uint64{"configmaps": 7}})
	for _, name := range []string{"kept", "gone"} {
		cm := newConfigMap("n", name, nil)
		cm.ResourceVersion = "7"
		if _, err := d.client(t, "m").Update(why(t), configMaps, cm); err == nil {
			t.Fatalf("%s: an answer came", name)
		}
	}
	if w := d.ledger.written(); w.Complete {
		t.Errorf("before: %v", w)
	}
	d.ledger.unanswered = time.Now().Add(-settleTime) // as if that long ago
	for ref := range d.ledger.openWrites() {
		d.ledger.account(configMaps).open[ref] = d.ledger.unanswered
	}
	(&leasing{door: d, permissions: newPermissions()}).Settle(t.Context())
	if w := d.ledger.written(); !w.Complete || w.Revisions["configmaps"] != 9 {
		t.Errorf("after: %v", w)
	}
}

// Creates of which one is refused, and another stored, leave nothing open: none of
// them has a name before it is answered.
func TestCreatesLeaveNothingOpen(t *testing.T) {
	l := newLedger()
	l.begin(&Written{Complete: true})
	ref := Ref{Resource: configMaps, Namespace: "n"}
	first, second := l.sent(ref), l.sent(ref)
	if w := l.written(); w.Complete {
		t.Errorf("while they are under way: %v", w)
	}
	l.refused(ref, first)
	l.refused(ref, second)
	if w := l.written(); !w.Complete || len(l.openWrites()) > 0 {
		t.Errorf("after two were refused: %v, open %v", w, l.openWrites())
	}
	first, second = l.sent(ref), l.sent(ref)
	cm := &unstructured.Unstructured{}
	cm.SetResourceVersion("8")
	l.stored(ref, cm)
	l.refused(ref, second)
	if w := l.written(); !w.Complete || w.Revisions["configmaps"] != 8 {
		t.Errorf("after one was stored and one refused: %v (%v)", w, first)
	}
	l.sent(ref)
	l.missed(ref)
	if w := l.written(); w.Complete {
		t.Errorf("after one that nobody knows of: %v", w)
	}
}

// An update replaces what was read, and nothing newer.
func TestUpdateNeedsARevision(t *testing.T) {
	var arrived seen
	d := openDoor(t, func(c *Config) {
		c.K8sAPIServer = serve(t, func(_ http.ResponseWriter, r *http.Request) { arrived.note(r) })
	})
	d.lead(t)
	_, err := d.client(t, "m").Update(why(t), configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "n"}})
	if err == nil || len(arrived.all()) > 0 {
		t.Errorf("%d requests without a resourceVersion: %v", len(arrived.all()), err)
	}
}
