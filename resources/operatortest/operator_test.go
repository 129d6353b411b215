// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package operatortest_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
)

func TestExample(t *testing.T) {
	Example()
	t.Run("on a control plane", testMarker)
}

// unreachable is an API server that is none.
const unreachable = "--k8s-api-server=http://127.0.0.1:1"

// counter is a duty that counts its terms, and is degraded in the first.
func counter(terms *int) cell.Cell {
	return cell.Module("counter", "Counts terms", cell.Job("count", func(h health.Reporter) job.Job {
		return job.OneShot(func(context.Context) error {
			*terms++
			if part := h.Child("first"); *terms == 1 {
				part.Degraded("it is the first term", nil)
			} else {
				part.OK("it is another term")
			}
			return nil
		})
	}))
}

func TestTerms(t *testing.T) {
	terms := 0
	op := operatortest.Start(t, counter(&terms), "", unreachable)
	operatortest.Eventually(t, "the job of the first term has ended", func() bool { return op.Level("counter.job-count") == health.Stopped })
	if d := op.Degraded("counter"); terms != 1 || !strings.Contains(d, "counter.first: it is the first term") {
		t.Errorf("after %d terms: degraded %q", terms, d)
	}
	op.ReenterTerm()
	operatortest.Eventually(t, "the next term", func() bool { return op.Degraded("counter") == "" })
	op.Stop()
	op.Stop()
	if terms != 2 {
		t.Errorf("%d terms, want 2", terms)
	}
	if lines := op.Messages("counter"); len(lines) > 0 {
		t.Errorf("the duty logged %q", lines)
	}
}

func TestNewReturnsErrorsOfOptions(t *testing.T) {
	for _, arg := range []string{"--no-such-flag", "--operator-k8s-client-qps=-1"} {
		if _, err := operatortest.New(t, cell.Module("idle", "Does nothing"), "", unreachable, arg); err == nil {
			t.Errorf("%s: no error", arg)
		}
	}
}

// A lease that is lost fences writes while the duty goes on.
func TestLoseLease(t *testing.T) {
	env := operatortest.NewEnv(t, clustertest.Shared(t))
	env.CreateNamespace()
	var write func() error
	duty := cell.Module("writer", "Writes", cell.Invoke(func(c k8s.Client) {
		write = func() error {
			ctx := k8s.WithCause(t.Context(), &k8s.Cause{Rule: "writer write"})
			_, err := c.Create(ctx, configMaps,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: env.Namespace, GenerateName: "x-"}})
			return err
		}
	}))
	op := operatortest.Start(t, duty, env.Kubeconfig())
	if err := write(); err != nil {
		t.Error(err)
	}
	op.LoseLease()
	if err := write(); err == nil {
		t.Error("a write without the lease succeeded")
	}
	if n := len(op.Book.Writes(0)); n == 0 {
		t.Error("no write is recorded")
	}
}
