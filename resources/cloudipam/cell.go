// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/graph"
)

// Cell has the options and the streams of duties that Module declares. It belongs to the process.
var Cell = cell.Module("cloudipam", "Watches what IPAM duties of clouds read, and has their options",
	cell.Config(defaultConfig),
	cell.EnabledBy(k8s.InUse),
	stream.Provide(ciliumNodes),
	stream.Provide(pendingPods),
)

// Module declares the IPAM duty of a cloud. mode is the value of --ipam that enables it, one of those that agents know: it
// says what they read of a CiliumNode, and so what SetStatus of the provider sets. server is the cloud's API in
// metrics, health and plans: one word in lower case. newProvider is a constructor that returns a [Provider]; it takes the
// *outside.Door that its calls pass, and what else it needs. cells are more of the module. It belongs to the term of the
// leader, and needs Cell in the process.
func Module(id, title, mode, server string, newProvider any, cells ...cell.Cell) cell.Cell {
	if !slices.Contains(cluster.IPAMModes(), mode) {
		cells = append(cells, cell.Broken(fmt.Sprintf("module %s serves the IPAM mode %q, and --ipam is never that", id, mode),
			"use a mode that agents know: "+strings.Join(cluster.IPAMModes(), ", ")))
	}
	if !word.MatchString(server) {
		cells = append(cells, cell.Broken(fmt.Sprintf("module %s calls the server %q, which is no name for metrics", id, server), "use one word in lower case"))
	}
	newDoor := func(s outside.Scope, c Config, m *outside.APIMetrics) *outside.Door {
		return outside.New(s, server, outside.Limits{QPS: c.LimitIPAMAPIQPS, Burst: c.LimitIPAMAPIBurst}).Measured(m)
	}
	return cell.MadeModule(id, title, append([]cell.Cell{
		cell.Validate(cell.Made("cloudipam.Module", func(_ cluster.Config, g graph.Source) error { return checkTerm(id, g()) })),
		cell.Suggest(howToProvide),
		cell.EnabledBy(cell.When(mode+" is the IPAM mode", []string{"ipam"}, func(c cluster.Config) bool { return c.IPAM == mode })),
		cell.Annotate(cluster.Allocator{Mode: mode}),
		ciliumNodes.Permissions(),
		pendingPods.Permissions(),
		k8s.RBAC(
			k8s.Allow("get,update", v2.CiliumNodeResource.GroupResource()),
			k8s.Allow("update", statusResource),
		),
		k8s.OptionalRBAC(k8s.Allow("get,list", coreNodes.GroupResource())), // one by its name, where two CiliumNodes name one instance
		cell.Metrics(newMetrics),
		cell.Metrics(newDeficitMetrics),
		cell.Metrics(newSyncMetrics),
		cell.Metrics(newResyncMetrics),
		cell.Metrics(outside.NewAPIMetrics(server)),
		cell.ProvidePrivate(newDoor, newProvider, newController),
		cell.Job("write", (*controller).write),
		cell.Job("read", (*controller).readCloud),
		cell.Job("nodes", (*controller).watchNodes, cell.Retry(time.Second, time.Minute)),
	}, cells...)...)
}

var word = regexp.MustCompile(`^[a-z][a-z0-9]*$`)

// checkTerm returns an error if a module stands in the process: none of its writes would be made.
func checkTerm(id string, g *graph.Graph) error {
	at := slices.IndexFunc(g.Modules, func(m graph.Module) bool { return m.ID == id && m.Term == "" })
	if at < 0 {
		return nil
	}
	return fmt.Errorf("module %s: %w", id, k8s.ErrReadOnly)
}

// howToProvide says how what Cell provides comes into the graph.
func howToProvide(missing reflect.Type) string {
	switch missing {
	case reflect.TypeFor[Config](), reflect.TypeFor[stream.Resource[ciliumNode]](), reflect.TypeFor[stream.Resource[pendingPod]]():
		return "add cloudipam.Cell to the process, with With(cloudipam.Cell)"
	}
	return ""
}

var (
	ciliumNodes = stream.Custom[ciliumNode](v2.CiliumNodeResource).OfKind("CiliumNode")
	// pendingPods are selected by the API server: a handful, whatever the size of the cluster.
	pendingPods = stream.Core[pendingPod, corev1.Pod](corev1.SchemeGroupVersion.WithResource("pods")).
			MatchingFields("status.phase=Pending,spec.nodeName!=")
)
