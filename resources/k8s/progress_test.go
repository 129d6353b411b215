// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"errors"
	"net/http"
	"path"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/leading"
)

// L9: which answers leave open what a write did, and for which writes that matters.
func TestWritesWithoutAnAnswer(t *testing.T) {
	refused := func(err *apierrors.StatusError) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(int(err.ErrStatus.Code))
			answer(w, asSent(err))
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
			d := openTransport(t, func(c *Config) { c.K8sAPIServer = serve(t, test.handle) })
			d.lead(t)
			d.progress.Begin(&leading.WriteProgress{Complete: true})
			c := d.client(t, "m")
			_ = c.Delete(why(t), Ref{Resource: configMaps, Namespace: "n", Name: "a"}, Preconditions{UID: types.UID("u")})
			if d.progress.Unanswered() > 0 {
				t.Error("a deletion is waited for: its precondition says what it may delete")
			}
			cm := newConfigMap("n", "a", nil)
			cm.ResourceVersion = "7"
			stored, err := c.Update(why(t), configMaps, cm)
			if name == "ok" && (err != nil || stored.GetResourceVersion() != "8" || d.progress.WriteProgress().Revisions["configmaps"] != 8) {
				t.Errorf("stored %v (%v), the next leader is told %v", stored, err, d.progress.WriteProgress())
			}
			if open := d.progress.Unanswered() > 0; open != test.open {
				t.Errorf("open: %t (%v)", open, err)
			}
		})
	}
}

// asSent is an error as an API server sends it.
func asSent(err *apierrors.StatusError) metav1.Status {
	status := err.ErrStatus
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return status
}

// L9: what became of writes whose answers were lost is found out for the next leader.
func TestEndOfTermLearnsWhatBecameOfWrites(t *testing.T) {
	var mu sync.Mutex
	stored := map[string]string{"kept": "7"} // resourceVersions by name
	encode := func(w http.ResponseWriter, name string) {
		if stored[name] == "" {
			w.WriteHeader(http.StatusNotFound)
			answer(w, asSent(apierrors.NewNotFound(configMaps.GroupResource(), name)))
			return
		}
		cm := newConfigMap("n", name, nil)
		cm.TypeMeta, cm.ResourceVersion = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, stored[name]
		answer(w, cm)
	}
	d := openTransport(t, func(c *Config) {
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
	d.progress.Begin(&leading.WriteProgress{Complete: true, Revisions: map[string]uint64{"configmaps": 7}})
	for _, name := range []string{"kept", "gone"} {
		cm := newConfigMap("n", name, nil)
		cm.ResourceVersion = "7"
		if _, err := d.client(t, "m").Update(why(t), configMaps, cm); err == nil {
			t.Fatalf("%s: an answer came", name)
		}
	}
	if w := d.progress.WriteProgress(); w.Complete {
		t.Errorf("before: %v", w)
	}
	d.progress.Now = func() time.Time { return time.Now().Add(time.Minute) } // as if that long ago
	(&session{guardedTransport: d, permissions: newPermissions()}).DrainWrites(t.Context())
	if w := d.progress.WriteProgress(); !w.Complete || w.Revisions["configmaps"] != 9 {
		t.Errorf("after: %v", w)
	}
}

// An update replaces what was read, and nothing newer.
func TestUpdateNeedsARevision(t *testing.T) {
	var arrived seen
	d := openTransport(t, func(c *Config) {
		c.K8sAPIServer = serve(t, func(_ http.ResponseWriter, r *http.Request) { arrived.note(r) })
	})
	d.lead(t)
	_, err := d.client(t, "m").Update(why(t), configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "n"}})
	if err == nil || len(arrived.all()) > 0 {
		t.Errorf("%d requests without a resourceVersion: %v", len(arrived.all()), err)
	}
}
