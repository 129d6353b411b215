// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package unmanaged

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell restarts pods that no agent manages.
var Cell = cell.Module("nodes.unmanaged", "Restarts DNS pods that started before the agent of their node",
	cell.Config(Config{UnmanagedPodWatcherInterval: seconds(15 * time.Second), PodRestartSelector: "k8s-app=kube-dns"}),
	cell.EnabledBy(cell.When("an interval is set, and agents create CiliumEndpoints", []string{"unmanaged-pod-watcher-interval", "disable-endpoint-crd", "kvstore"}, enabled)),
	stream.ProvideSelected(pods, selected),
	pods.Permissions(), ciliumio.Endpoints.Permissions(), agents.Nodes.Permissions(),
	k8s.RBAC(k8s.Allow("get", pods.Resource().GroupResource())),
	k8s.OptionalRBAC( // else one is listed by its name
		k8s.Allow("get", ciliumio.Endpoints.Resource().GroupResource()),
		k8s.Allow("get", agents.Nodes.Resource().GroupResource()),
	),
	k8s.EventRBAC(),

	cell.Metrics(newMetrics),
	cell.ProvidePrivate(newController),
	cell.Job("watch", (*controller).run),
	cell.Module("restart", "Lets the duty delete pods",
		cell.EnabledBy(cell.When("pods are restarted", []string{observeFlag}, func(c Config) bool { return !c.EnableUnmanagedPodObserveOnly })),
		k8s.RBAC(k8s.Allow("delete", pods.Resource().GroupResource())),
	),
)

func enabled(c Config, shared cluster.Config) bool {
	return c.UnmanagedPodWatcherInterval != 0 && shared.EndpointCRD()
}

var pods = stream.Core[pod, corev1.Pod](corev1.SchemeGroupVersion.WithResource("pods")).MatchingFields("status.phase=Running")

// selected restricts the pods to those of the option. An empty selector matches all.
func selected(pods stream.Kind[pod], c Config) stream.Kind[pod] {
	return pods.MatchingLabels(c.PodRestartSelector)
}
