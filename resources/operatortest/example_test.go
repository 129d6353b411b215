// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package operatortest_test

import (
	"context"
	"testing"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
)

// markerConfig are the options of the example's duty.
type markerConfig struct{ MarkerNamespace string }

// Flags declares them.
func (c markerConfig) Flags(f *pflag.FlagSet) {
	f.String("marker-namespace", c.MarkerNamespace, "Namespace of the ConfigMap")
}

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// marker is a duty that leaves a ConfigMap in a namespace when it starts to lead.
var marker = cell.Module("marker", "Leaves a ConfigMap in a namespace",
	cell.Config(markerConfig{}),
	k8s.RBAC(k8s.Allow("create", configMaps.GroupResource())),
	cell.Job("create", func(c k8s.Client, config markerConfig) job.Job {
		return job.OneShot(func(ctx context.Context) error {
			ctx = k8s.WithCause(ctx, &k8s.Cause{Rule: "marker create"})
			mark := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: config.MarkerNamespace, Name: "mark"}}
			_, err := c.Create(ctx, configMaps, mark)
			return err
		})
	}))

func TestMain(m *testing.M) { operatortest.Main(m) }

// testMarker is set by the example.
var testMarker func(*testing.T)

// A package that tests a duty so has
//
//	func TestMain(m *testing.M) { operatortest.Main(m) }
func Example() {
	testMarker = func(t *testing.T) {
		env := operatortest.NewEnv(t, clustertest.Shared(t))
		env.CreateNamespace()
		op := operatortest.Start(t, marker, env.Kubeconfig(), "--marker-namespace="+env.Namespace)
		operatortest.Eventually(t, "the ConfigMap is there", func() bool {
			_, err := env.Core.CoreV1().ConfigMaps(env.Namespace).Get(t.Context(), "mark", metav1.GetOptions{})
			return err == nil
		})
		env.CheckHealthy(op)
	}
	// Output:
}
