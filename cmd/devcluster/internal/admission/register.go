// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

const (
	// label marks configurations of this package, and objects that probe for one.
	label  = "devcluster.skep.dev/webhook"
	prefix = "devcluster-"
	// probeName is the name of these objects, which are never stored.
	probeName = prefix + "probe"
	// patience is how long the API server waits for a webhook that does not hang.
	patience = 10 * time.Second
)

// Registrar makes an API server ask a Server.
type Registrar struct {
	server   *Server
	client   kubernetes.Interface
	caBundle []byte
}

// NewRegistrar returns a Registrar for a server whose certificate is of an authority. It
// removes what an earlier one has left.
func NewRegistrar(ctx context.Context, server *Server, client kubernetes.Interface, caBundle []byte) (*Registrar, error) {
	r := &Registrar{server, client, caBundle}
	left := metav1.ListOptions{LabelSelector: label}
	webhooks := client.AdmissionregistrationV1()
	if err := errors.Join(
		webhooks.ValidatingWebhookConfigurations().DeleteCollection(ctx, metav1.DeleteOptions{}, left),
		webhooks.MutatingWebhookConfigurations().DeleteCollection(ctx, metav1.DeleteOptions{}, left),
	); err != nil {
		return nil, fmt.Errorf("remove webhooks of an earlier devcluster: %w", err)
	}
	return r, nil
}

// Add registers a rule and returns when the API server follows it.
func (r *Registrar) Add(ctx context.Context, ask control.Admission) (control.Admission, error) {
	added, err := r.server.add(ask)
	if err != nil {
		return added, err
	}
	err = r.register(ctx, added)
	if err == nil {
		err = r.awaitAsked(ctx, added.ID)
	}
	if err != nil {
		return added, errors.Join(fmt.Errorf("register webhook %s: %w", added.ID, err), r.Remove(context.WithoutCancel(ctx), added.ID))
	}
	return added, nil
}

// Remove ends a rule at once, and its registration.
func (r *Registrar) Remove(ctx context.Context, id string) error {
	found := r.server.find(id)
	if err := r.server.remove(id); err != nil {
		return err
	}
	webhooks := r.client.AdmissionregistrationV1()
	remove := webhooks.ValidatingWebhookConfigurations().Delete
	if rewrites(found) {
		remove = webhooks.MutatingWebhookConfigurations().Delete
	}
	if err := remove(ctx, prefix+id, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("remove webhook %s: %w", id, err)
	}
	return nil
}

func (r *Registrar) register(ctx context.Context, a control.Admission) error {
	webhooks := r.client.AdmissionregistrationV1()
	meta := metav1.ObjectMeta{Name: prefix + a.ID, Labels: map[string]string{label: a.ID}}
	if !rewrites(a) {
		_, err := webhooks.ValidatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{r.webhook(a), r.probe(a)},
		}, metav1.CreateOptions{})
		return err
	}
	_, err := webhooks.MutatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: meta, Webhooks: []admissionregistrationv1.MutatingWebhook{mutating(r.webhook(a)), mutating(r.probe(a))},
	}, metav1.CreateOptions{})
	return err
}

// webhook asks about what a rule matches.
func (r *Registrar) webhook(a control.Admission) admissionregistrationv1.ValidatingWebhook {
	w := r.base(a.ID+".webhooks.skep.dev", r.server.url(a.ID), ruleOf(a.Match))
	if len(a.Match.Users) > 0 { // requests of others do not depend on the webhook
		w.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "users", Expression: fmt.Sprintf("request.userInfo.username in %s", quoted(a.Match.Users))}}
	}
	if a.Hang != nil {
		w.TimeoutSeconds = ptr.To(int32(cmp.Or(a.Hang.Patience, time.Second) / time.Second))
		if a.Hang.FailOpen {
			w.FailurePolicy = ptr.To(admissionregistrationv1.Ignore)
		}
	}
	return w
}

// probe asks about objects that are sent to see whether the API server asks at all: it
// knows all webhooks of a configuration or none.
func (r *Registrar) probe(a control.Admission) admissionregistrationv1.ValidatingWebhook {
	w := r.base(a.ID+".probes.skep.dev", r.server.probeURL(a.ID), ruleOf(control.AdmissionMatch{
		Operations: []string{"CREATE"}, Groups: []string{"core"}, Resources: []string{"configmaps"},
	}))
	w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{label: a.ID}}
	return w
}

func (r *Registrar) base(name, url string, rule admissionregistrationv1.RuleWithOperations) admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name: name, ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: r.caBundle},
		Rules: []admissionregistrationv1.RuleWithOperations{rule}, AdmissionReviewVersions: []string{"v1"},
		SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), FailurePolicy: ptr.To(admissionregistrationv1.Fail),
		TimeoutSeconds: ptr.To(int32(patience / time.Second)),
	}
}

func mutating(w admissionregistrationv1.ValidatingWebhook) admissionregistrationv1.MutatingWebhook {
	return admissionregistrationv1.MutatingWebhook{
		Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, AdmissionReviewVersions: w.AdmissionReviewVersions,
		SideEffects: w.SideEffects, FailurePolicy: w.FailurePolicy, TimeoutSeconds: w.TimeoutSeconds, ObjectSelector: w.ObjectSelector,
		MatchConditions: w.MatchConditions,
	}
}

// quoted is a list of CEL.
func quoted(texts []string) string {
	all := make([]string, len(texts))
	for i, t := range texts {
		all[i] = strconv.Quote(t)
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func ruleOf(m control.AdmissionMatch) admissionregistrationv1.RuleWithOperations {
	rule := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
	}
	if len(m.Operations) > 0 {
		rule.Operations = nil
	}
	for _, op := range m.Operations {
		rule.Operations = append(rule.Operations, admissionregistrationv1.OperationType(op))
	}
	if len(m.Groups) > 0 {
		rule.APIGroups = nil
	}
	for _, group := range m.Groups {
		if group == "core" {
			group = ""
		}
		rule.APIGroups = append(rule.APIGroups, group)
	}
	if len(m.Resources) > 0 {
		rule.Resources = m.Resources
	}
	return rule
}

// awaitAsked waits until the API server asks about objects that probe for a rule.
func (r *Registrar) awaitAsked(ctx context.Context, id string) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: probeName, Labels: map[string]string{label: id}}}
	var last error
	err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		_, last = r.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return last != nil && strings.Contains(last.Error(), probed), nil
	})
	if err != nil {
		return fmt.Errorf("wait until the API server asks: %w (last answer: %v)", err, last)
	}
	return nil
}
