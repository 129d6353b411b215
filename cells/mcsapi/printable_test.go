// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/printable/printabletest"
)

// K6 of the contract's tenants.md, for what a webhook answers and what a remote cluster exports: conditions, Events, the log and health show it in
// lines that control nothing.
func TestTextsOfWebhooksAndExports(t *testing.T) {
	const hostile = printabletest.Hostile
	w := newWorld(t, "c2")
	clustertest.Shared(t).Admit(t, clustertest.Admission{
		Match:  clustertest.AdmissionMatch{Operations: []string{"CREATE"}, Resources: []string{"services"}, Groups: []string{"core"}, Namespaces: []string{w.Namespace}},
		Reject: &clustertest.Reject{Codes: []int{http.StatusUnprocessableEntity}, Message: hostile, Reason: string(metav1.StatusReasonInvalid)},
	})
	q, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	w.publish("c2", "web", "ClusterSetIP", 2020, httpPort)
	w.publish("c2", "odd", "ClusterSetIP", 2020, fmt.Sprintf(`{"name":%s,"protocol":%[1]s,"port":80,"appProtocol":%[1]s}`, q))
	w.peers["c2"].Put(w.exportKey("c2", hostile), hostile, 0)
	o := w.start(operatortest.TextLog)
	message := ""
	operatortest.Eventually(t, "the refusal is in the condition", func() bool {
		i, _ := read[mcsv1alpha1.ServiceImport](w, imports.Resource(), "web")
		for _, c := range i.Status.Conditions {
			message = c.Message
		}
		return strings.Contains(message, printabletest.Forged)
	})
	printabletest.CheckLine(t, "the condition", message)
	operatortest.Eventually(t, "the refusal is in an Event", func() bool { return w.hasEvent("web", "DerivedServiceRefused", printabletest.Forged) })
	events, err := w.Core.CoreV1().Events(w.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		printabletest.CheckLine(t, "the Event "+e.Reason, e.Message)
	}
	printabletest.CheckContains(t, "the log", o.Log().String())
	printabletest.Check(t, "health", o.HealthText())
}
