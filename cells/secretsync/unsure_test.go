// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// knownWatch shows nothing by itself, and is complete while it is known.
type knownWatch[T any] struct{ isKnown atomic.Bool }

// Follow implements consentWatch.
func (*knownWatch[T]) Follow(ctx context.Context, _ func(stream.Change[T]), _ ...func()) {
	<-ctx.Done()
}

// Complete implements consentWatch.
func (w *knownWatch[T]) Complete() error {
	if !w.isKnown.Load() {
		return errors.New("not yet")
	}
	return nil
}

// sharedRecords are records of several goroutines.
type sharedRecords struct {
	mu    sync.Mutex
	all   recorded
	woken map[secretref.Object]bool
}

// Set implements secretref.Recorder.
func (r *sharedRecords) Set(from corev1.ObjectReference, to ...secretref.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.Set(from, to...)
}

// SetFirst implements secretref.Recorder.
func (r *sharedRecords) SetFirst(from corev1.ObjectReference, _ int, to ...secretref.Object) {
	r.Set(from, to...)
}

// SetUnknown implements secretref.Recorder.
func (*sharedRecords) SetUnknown(corev1.ObjectReference) {}

// Changed implements secretref.Recorder.
func (r *sharedRecords) Changed(of secretref.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.woken[of] = true
}

// SEC-22: what was recorded while it was not known what a configuration may mean is recorded again once it is, at a start and each time that a watch has to begin
// anew. What waits for a name is woken. Configurations of Ingresses need nothing to be known: they refer to nothing that others let Gateways refer to.
func TestAnswersWithoutKnowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		grants, sets := &knownWatch[referenceGrant]{}, &knownWatch[listenerSet]{}
		names, tls, later := secretref.NewNames(), secretNamed("victim", "tls"), secretNamed("victim", "later")
		means := &meanings{own: "kube-system", names: names, consents: newConsents(&k8s.Permissions{}, grants, sets)}
		names.LimitPins(means.mayBe)
		names.Exists("copies", tls.CopyName(), tls)
		names.MarkKnown()
		forged := &envoy.Object{}
		forged.Namespace, forged.Name = slim.MakeString("team"), "forged"
		forged.Spec.Secrets = envoy.MakeSecretNames("copies/victim-tls", "copies/victim-later")
		var sources []*configurationSource
		var records []*sharedRecords
		for _, name := range []string{"gateways", "ingresses"} {
			s := &configurationSource{
				name: name, namespace: "copies", counts: func(*envoy.Object) bool { return true }, own: "kube-system", isLeft: true, follows: name == "gateways",
				names: names, meanings: means, refer: means, log: slog.New(slog.DiscardHandler), configurations: configurationsAt{followed: []*envoy.Object{forged}},
				pinned: map[slim.Key]pinned{}, many: map[string]int{}, reported: map[string]bool{},
			}
			if name == "ingresses" {
				s.refer = &meanings{own: "kube-system", names: names}
			}
			r := &sharedRecords{all: recorded{to: map[string][]string{}}, woken: map[secretref.Object]bool{}}
			sources, records = append(sources, s), append(records, r)
			go s.Follow(ctx, r)
		}
		check := func(what string, stays bool) {
			t.Helper()
			time.Sleep(3 * consentInterval) // of the test's clock
			synctest.Wait()
			for i, r := range records {
				if got := slices.Contains(r.all.to["team/forged"], "victim/tls"); got != (stays && sources[i].follows) {
					t.Errorf("%s: of %s the copy stays: %t", what, sources[i].name, got)
				}
			}
		}
		check("nothing is known", true)
		if names.Plain("copies", later) {
			t.Error("a name is given that another object may have")
		}
		grants.isKnown.Store(true)
		check("ListenerSets are not known", true)
		sets.isKnown.Store(true)
		check("all is known", false)
		if !records[0].woken[later] || !records[1].woken[later] || !names.Plain("copies", later) {
			t.Error("what waits for a name is not woken")
		}
		for range 2 {
			grants.isKnown.Store(false)
			check("nothing is recorded", false)
			for i, s := range sources {
				s.changed(stream.Change[envoy.Object]{Kind: stream.Upsert, Key: forged.Key(), Object: forged}, records[i])
			}
			check("a watch begins anew", true)
			grants.isKnown.Store(true)
			check("it is complete", false)
		}
		cancel()
		synctest.Wait()
	})
}
