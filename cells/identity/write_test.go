// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

// doorman is a role that lacks create until it is given.
type doorman struct {
	k8s.Client
	open     bool
	denies   string // an app that an admission webhook does not let in
	requests int
}

func (d *doorman) Create(_ context.Context, resource schema.GroupVersionResource, obj runtime.Object) (*unstructured.Unstructured, error) {
	o := obj.(*v2.CiliumIdentity)
	if d.requests++; !d.open || d.denies != "" && o.SecurityLabels["k8s:app"] == d.denies {
		return nil, apierrors.NewForbidden(resource.GroupResource(), o.Name, errors.New("no"))
	}
	n, _ := identity.ParseNumber(o.Name)
	return encoded(identityOf(n, slim.MakeLabels(o.SecurityLabels), 1)), nil
}

// ID-24: what an admission webhook does not let in holds back nothing else.
func TestForbiddenLabelsHoldBackNoOthers(t *testing.T) {
	door := &doorman{open: true, denies: "p0"}
	tb, _ := plan(t, "n")
	tree := health.NewTree()
	m := &controller{
		params: params{Client: door, Metrics: newMetrics(metrics.Factory{}), Health: tree.Reporter("identity"), Log: slog.New(slog.DiscardHandler)},
		table:  tb, enqueue: func(slim.Labels, ...k8s.Trigger) {},
	}
	look := func(name string) error {
		tb.upsertPod(podOf("n", name, pairs{"app": name}))
		return m.reconcile(t.Context(), labelsOf(tb, name))
	}
	for i := range 3 {
		if err := look("p0"); err == nil {
			t.Error("what is forbidden is not tried again")
		}
		if len(tree.Degraded()) == 0 {
			t.Error("what is forbidden is not told")
		}
		if err := look(fmt.Sprint("other-", i)); err != nil {
			t.Errorf("another waits: %v", err)
		}
		if len(tree.Degraded()) > 0 {
			t.Error("what was let in is not told")
		}
	}
}

// ID-24: one of the forbidden requests is repeated now and then, and label sets that no
// pod has any more do not take its turn.
func TestForbiddenTurnGoesToWhoNeedsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := &doorman{}
		tb, _ := plan(t, "n")
		m := &controller{
			params: params{Client: door, Metrics: newMetrics(metrics.Factory{}), Health: health.NewTree().Reporter("identity"), Log: slog.New(slog.DiscardHandler)},
			table:  tb, enqueue: func(slim.Labels, ...k8s.Trigger) {},
		}
		var sets []slim.Labels
		for i := range 30 {
			name := fmt.Sprint("p", i)
			tb.upsertPod(podOf("n", name, pairs{"app": name}))
			sets = append(sets, labelsOf(tb, name))
		}
		look := func() (waiting int) {
			for _, of := range sets {
				if m.reconcile(t.Context(), of) != nil {
					waiting++
				}
			}
			return waiting
		}
		for turn := range 3 { // the first takes two: one alone could be a webhook's
			if waiting := look(); waiting != 30 || door.requests != turn+2 {
				t.Fatalf("%d wait, and there were %d requests at turn %d", waiting, door.requests, turn)
			}
			time.Sleep(forbiddenPause)
		}
		for i := range 29 {
			tb.deletePod(podOf("n", fmt.Sprint("p", i), nil).Key())
		}
		door.open = true
		if waiting := look(); waiting != 0 || door.requests != 5 || len(tb.objects) != 1 {
			t.Errorf("%d wait, there were %d requests, and %d identities are there", waiting, door.requests, len(tb.objects))
		}
		if err := tb.consistent(); err != nil {
			t.Error(err)
		}
	})
}
