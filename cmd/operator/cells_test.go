// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// What tests ask of an operator, in its environment.
const (
	// chatter is the name of a ConfigMap that the term writes all the time.
	chatter = "SKEP_TEST_CHATTER"
	// chatterPace is the time between two of its writes, and of those in etcd.
	chatterPace = "SKEP_TEST_CHATTER_PACE"
	// slowStop is how long the term takes to stop, whatever its context says.
	slowStop = "SKEP_TEST_SLOW_STOP"
	// panics makes a module of the term panic all the time.
	panics = "SKEP_TEST_PANICS"
)

// testCells are duties of tests. Each does nothing unless it is asked to.
var testCells = []cell.Cell{
	etcdChatterCell,
	groupsCell,
	machinesCell,
	cell.Module("chatter", "Writes a ConfigMap without a pause", k8s.OptionalRBAC(k8s.Allow("get,create,update,patch", schema.GroupResource{Resource: "configmaps"})),
		cell.ProvidePrivate(newTalk), cell.Job("write", newChatter), cell.Hook("slow", newSlowStop)),
	cell.Module("panics", "Panics", cell.Job("panic", newPanics)),
}

// talk makes the hook start after the job, which serves it, and stop before.
type talk struct{}

func newTalk() *talk { return &talk{} }

// pace is the time between two writes of a chatter.
func pace() time.Duration {
	if d, err := time.ParseDuration(os.Getenv(chatterPace)); err == nil {
		return d
	}
	return 20 * time.Millisecond
}

func newChatter(_ *talk, c k8s.Client, shared cluster.Config, log *slog.Logger) job.Job {
	name := os.Getenv(chatter)
	write := func(ctx context.Context, n int) error {
		// What changes nothing would have the revision of another's write.
		text := fmt.Sprintf("%d at %d", n, time.Now().UnixNano())
		ctx = k8s.WithCause(ctx, &k8s.Cause{Rule: "chatter"})
		ref := k8s.Ref{Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Namespace: shared.K8sNamespace, Name: name}
		if n%2 == 1 { // without a precondition: one that comes late is stored; in a field of its own, or it undoes the other
			_, err := c.Patch(ctx, ref, fmt.Appendf(nil, `{"data":{"patched":%q}}`, text))
			return err
		}
		_, _, err := c.Modify(ctx, ref, func(u *unstructured.Unstructured) error {
			return unstructured.SetNestedField(u.Object, text, "data", "n")
		})
		if apierrors.IsNotFound(err) {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: name}}
			cm.APIVersion, cm.Kind = "v1", "ConfigMap"
			_, err = c.Create(ctx, ref.Resource, cm)
		}
		return err
	}
	return job.OneShot(func(ctx context.Context) error {
		for n := 0; name != "" && ctx.Err() == nil; {
			switch err := write(ctx, n); {
			case err != nil:
				log.Debug("chatter", "error", err)
			case n == 0:
				log.Info("chatter has begun")
				fallthrough
			default:
				n++
			}
			time.Sleep(pace()) // a pace, not a wait
		}
		return ctx.Err()
	})
}

// newSlowStop stops before the chatter does, which goes on meanwhile.
func newSlowStop(*talk) lifecycle.Hook {
	return lifecycle.Funcs{OnStop: func(context.Context) error {
		d, _ := time.ParseDuration(os.Getenv(slowStop))
		time.Sleep(d) // it is slow
		return nil
	}}
}

func newPanics() job.Job {
	return job.OneShot(func(context.Context) error {
		if os.Getenv(panics) != "" {
			panic(fmt.Sprint("as the test wants it: ", os.Getenv(panics)))
		}
		return nil
	})
}
