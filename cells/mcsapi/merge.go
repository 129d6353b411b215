// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/clustermesh"
)

// merged is what clusters export under one name, as one service.
type merged struct {
	spec        mcsv1alpha1.ServiceImportSpec // without addresses
	labels      map[string]string
	annotations map[string]string
	clusters    []string // by name
	conflicts   []conflict
	own         string // this cluster, if its export decides
}

// conflict is a property in which exports differ.
type conflict struct {
	reason mcsv1alpha1.ServiceExportConditionReason
	text   string
}

// merge makes one service of exports. Of different values that of this cluster counts: another one may claim any date. Then that of the
// oldest export does, of two that are equally old that of the cluster whose name comes first. Ports are those of all, but for those that
// contradict an earlier export's.
func (r rules) merge(exports []*clustermesh.ServiceExport) merged {
	var m merged
	exports = slices.SortedFunc(slices.Values(exports), func(a, b *clustermesh.ServiceExport) int {
		return cmp.Or(cmp.Compare(r.rank(a), r.rank(b)), a.Created.Compare(b.Created.Time), cmp.Compare(a.Cluster, b.Cluster))
	})
	for _, e := range exports {
		m.clusters = append(m.clusters, e.Cluster)
	}
	slices.Sort(m.clusters)
	if len(exports) == 0 {
		return m
	}
	first := exports[0]
	if r.rank(first) == 0 && !r.oldestDecides {
		m.own = first.Cluster
	}
	m.spec = mcsv1alpha1.ServiceImportSpec{
		Ports: []mcsv1alpha1.ServicePort{}, Type: first.Type, SessionAffinity: affinityOf(first), SessionAffinityConfig: first.SessionAffinityConfig,
	}
	m.mergePorts(exports)
	m.compare(mcsv1alpha1.ServiceExportReasonTypeConflict, "type", exports, func(e *clustermesh.ServiceExport) any { return e.Type })
	m.compare(mcsv1alpha1.ServiceExportReasonSessionAffinityConflict, "session affinity", exports, func(e *clustermesh.ServiceExport) any { return affinityOf(e) })
	m.compare(mcsv1alpha1.ServiceExportReasonSessionAffinityConfigConflict, "configuration of session affinity", exports, func(e *clustermesh.ServiceExport) any {
		if affinityOf(e) != affinityOf(first) { // that is the conflict
			return first.SessionAffinityConfig
		}
		return e.SessionAffinityConfig
	})
	m.mergeMetadata(exports, r)
	m.mergeTraffic(exports)
	return m
}

// rank is 0 for the export that decides whatever its date is.
func (r rules) rank(e *clustermesh.ServiceExport) int {
	if r.oldestDecides || e.Cluster == r.cluster {
		return 0
	}
	return 1
}

func affinityOf(e *clustermesh.ServiceExport) corev1.ServiceAffinity {
	return cmp.Or(e.SessionAffinity, corev1.ServiceAffinityNone)
}

// compare finds the clusters whose value of a property is another one than that of the first export.
func (m *merged) compare(reason mcsv1alpha1.ServiceExportConditionReason, what string, exports []*clustermesh.ServiceExport, value func(*clustermesh.ServiceExport) any) {
	var differ []string
	for _, e := range exports[1:] {
		if !reflect.DeepEqual(value(exports[0]), value(e)) {
			differ = append(differ, e.Cluster)
		}
	}
	m.addConflict(reason, what, exports[0].Cluster, differ)
}

func (m *merged) addConflict(reason mcsv1alpha1.ServiceExportConditionReason, what, winner string, differ []string) {
	if len(differ) > 0 {
		why := "whose export is older"
		if winner == m.own {
			why = "which is this one"
		}
		text := fmt.Sprintf("the %s is that of cluster %s, %s, and another one in %s", what, winner, why, strings.Join(differ, ", "))
		m.conflicts = append(m.conflicts, conflict{reason, text})
	}
}

// mergePorts adds the ports of all exports, those of older ones first.
func (m *merged) mergePorts(exports []*clustermesh.ServiceExport) {
	from := map[string]string{} // the cluster that a port is of, by the port's name
	type disputed struct{ port, winner string }
	differ := map[disputed][]string{}
	var order []disputed
	for _, e := range exports {
		for _, p := range e.Ports {
			p.Protocol = cmp.Or(p.Protocol, corev1.ProtocolTCP)
			other := contradicts(m.spec.Ports, p)
			switch {
			case other == nil:
				if !slices.ContainsFunc(m.spec.Ports, func(has mcsv1alpha1.ServicePort) bool { return has.Name == p.Name }) {
					m.spec.Ports = append(m.spec.Ports, p)
					from[p.Name] = e.Cluster
				}
			case from[other.Name] != e.Cluster: // a Service does not contradict itself
				d := disputed{portText(*other), from[other.Name]}
				if differ[d] == nil {
					order = append(order, d)
				}
				if !slices.Contains(differ[d], e.Cluster) {
					differ[d] = append(differ[d], e.Cluster)
				}
			}
		}
	}
	for _, d := range order {
		m.addConflict(mcsv1alpha1.ServiceExportReasonPortConflict, "port "+d.port, d.winner, differ[d])
	}
}

// contradicts returns the port that another one cannot be beside, nil if there is none: it has the same name and is another
// port, or the same number; or one of them has no name, which a Service with one port alone may have.
func contradicts(ports []mcsv1alpha1.ServicePort, p mcsv1alpha1.ServicePort) *mcsv1alpha1.ServicePort {
	for i := range ports {
		has := &ports[i]
		sameNumber := has.Port == p.Port && has.Protocol == p.Protocol
		switch {
		case has.Name == p.Name && sameNumber && reflect.DeepEqual(has.AppProtocol, p.AppProtocol):
		case has.Name == p.Name, sameNumber, has.Name == "", p.Name == "":
			return has
		}
	}
	return nil
}

func portText(p mcsv1alpha1.ServicePort) string {
	return strings.TrimSpace(fmt.Sprintf("%s %d/%s", p.Name, p.Port, p.Protocol))
}
