// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/operatortest"
)

// otherSlice makes an EndpointSlice of a name that is not ours.
func (w *world) otherSlice(name string, labels map[string]string) {
	w.T.Helper()
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{}}
	if _, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Create(w.T.Context(), s, metav1.CreateOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

// readyMessage is the message of the condition Ready of a ServiceExport.
func (w *world) readyMessage(name string) string {
	w.T.Helper()
	e, _ := read[mcsv1alpha1.ServiceExport](w, exports.Resource(), name)
	if c := meta.FindStatusCondition(e.Status.Conditions, string(mcsv1alpha1.ServiceExportConditionReady)); c != nil {
		return c.Message
	}
	return ""
}

// MCS-52; MCS-E28: K9 of the contract's tenants.md. EndpointSlices with the names of copies are left as they are, and asked for less and less often; the
// ServiceExport and an Event say so. The other copies are created, and these when the names are free.
func TestNamesOfCopiesThatOthersHave(t *testing.T) {
	w := newWorld(t)
	const count = 20
	derived := derivedKey(w.key("web")).Name
	w.service("web", nil)
	w.slice("web", "web-free", "192.0.2.200")
	for i := range count {
		w.slice("web", fmt.Sprintf("web-%03d", i), fmt.Sprintf("192.0.2.%d", i+1))
		labels := map[string]string{}
		if i%2 == 1 { // which the stream of EndpointSlices shows
			labels[discoveryv1.LabelServiceName] = "other"
		}
		w.otherSlice(fmt.Sprintf("%s-%03d", derived, i), labels)
	}
	o := w.start()
	w.export("web")
	w.awaitConditions("web", "Valid=True/Valid Ready=False/Failed Conflict=False/NoConflicts")
	if !strings.Contains(w.readyMessage("web"), fmt.Sprintf("%d EndpointSlices exist, %s-000 first, and are not copies", count, derived)) {
		t.Errorf("the ServiceExport says %q", w.readyMessage("web"))
	}
	operatortest.Eventually(t, "an Event", func() bool { return w.hasEvent("web", "DerivedServiceRefused", "EndpointSlices exist") })
	operatortest.Eventually(t, "the other copy is there", func() bool {
		_, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Get(t.Context(), derived+"-free", metav1.GetOptions{})
		return err == nil
	})
	from := len(w.Proxy.Requests(t, 0))
	time.Sleep(4 * time.Second) // what is tested is how many requests there are in a time
	refused, requests := 0, 0
	for i, r := range w.Proxy.Requests(t, 0) {
		if r.Namespace != w.Namespace || r.Resource != "endpointslices" || r.Verb == "watch" || r.Verb == "list" {
			continue
		}
		if r.Status == http.StatusConflict {
			refused++
		}
		if i >= from {
			requests++
		}
	}
	if refused != count || requests > 3*count {
		t.Errorf("%d are refused, and there are %d requests within 4 s", refused, requests)
	}
	for i := range count {
		w.deleteSlice(fmt.Sprintf("%s-%03d", derived, i))
	}
	operatortest.Eventually(t, "all copies are there", func() bool {
		n := 0
		for _, c := range w.copies() {
			if c.Labels[mcsv1alpha1.LabelServiceName] == "web" {
				n++
			}
		}
		return n == count+1
	})
	w.awaitConditions("web", "Valid=True/Valid Ready=True/Exported Conflict=False/NoConflicts")
	w.awaitHealthy(o)
}
