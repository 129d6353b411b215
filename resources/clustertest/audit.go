// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"bytes"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

// AuditEvent is the part of an audit event that tests read. A request that is
// not a watch has one event, when it is complete; a watch has one when it starts
// and one when it ends.
type AuditEvent struct {
	AuditID    string `json:"auditID"`
	Stage      string `json:"stage"`
	RequestURI string `json:"requestURI"`
	Verb       string `json:"verb"`
	User       struct {
		Username string   `json:"username"`
		Groups   []string `json:"groups"`
	} `json:"user"`
	UserAgent string `json:"userAgent"`
	// ObjectRef is empty for paths that are no resources.
	ObjectRef struct {
		APIGroup        string `json:"apiGroup"`
		APIVersion      string `json:"apiVersion"`
		Resource        string `json:"resource"`
		Subresource     string `json:"subresource"`
		Namespace       string `json:"namespace"`
		Name            string `json:"name"`
		UID             string `json:"uid"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code    int    `json:"code"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
	} `json:"responseStatus"`
	// RequestObject and ResponseObject are there if the cluster's AuditLevel
	// says so, and always for writes of leases and of ConfigMaps.
	RequestObject            json.RawMessage `json:"requestObject"`
	ResponseObject           json.RawMessage `json:"responseObject"`
	RequestReceivedTimestamp time.Time       `json:"requestReceivedTimestamp"`
	StageTimestamp           time.Time       `json:"stageTimestamp"`
}

// Mutates reports whether the request asks for a change. Reviews, which are
// created and never stored, count as reads.
func (e AuditEvent) Mutates() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, e.Verb) &&
		!control.IsReview(e.ObjectRef.APIGroup)
}

// Stored reports whether the request changed what the API server stores: it asks for a
// change, not as a dry run, and the answer says that it was made. A write that is held on
// its way and refused when it arrives was sent, and not stored.
func (e AuditEvent) Stored() bool {
	code := e.ResponseStatus.Code
	return e.Mutates() && code >= http.StatusOK && code < http.StatusMultipleChoices && !e.dryRun()
}

func (e AuditEvent) dryRun() bool {
	asked, err := url.ParseRequestURI(e.RequestURI)
	return err == nil && asked.Query().Has("dryRun")
}

// Sent is when the last byte of the request had left the client's socket. It is known of
// requests through a proxy.
func (e AuditEvent) Sent() (sent time.Time, ok bool) { return control.Sent(e.AuditID) }

// Revision is the resourceVersion of what a request has stored, 0 if the log does not
// have it. Of all objects of a server, that is one order.
func (e AuditEvent) Revision() uint64 {
	var object struct{ Metadata metav1.ObjectMeta }
	if !e.Stored() || json.Unmarshal(e.ResponseObject, &object) != nil {
		return 0
	}
	revision, _ := strconv.ParseUint(object.Metadata.ResourceVersion, 10, 64)
	return revision
}

// Audit reads the audit log from a place on. It belongs to one goroutine.
type Audit struct {
	file   string
	offset int64
}

// Audit reads what is logged from now on. A request is logged before its answer
// is complete: who has an answer finds its event. What a Load writes is not
// logged.
func (c *Cluster) Audit(tb testing.TB) *Audit {
	tb.Helper()
	a := &Audit{file: c.process.info.AuditLog}
	if err := a.skip(); err != nil {
		tb.Fatalf("read the audit log: %v", err)
	}
	return a
}

// AuditFromStart reads everything that was logged.
func (c *Cluster) AuditFromStart() *Audit { return &Audit{file: c.process.info.AuditLog} }

// Events yields what was logged since the last event that it yielded.
func (a *Audit) Events(tb testing.TB) iter.Seq[AuditEvent] {
	tb.Helper()
	return func(yield func(AuditEvent) bool) {
		tb.Helper()
		data := a.read(tb)
		for len(data) > 0 {
			line, rest, whole := bytes.Cut(data, []byte("\n"))
			if !whole {
				return // still being written
			}
			var event AuditEvent
			if err := json.Unmarshal(line, &event); err != nil {
				tb.Fatalf("parse the audit log at byte %d: %v", a.offset, err)
			}
			a.offset += int64(len(line)) + 1
			data = rest
			if !yield(event) {
				return
			}
		}
	}
}

// skip leaves out all lines that are whole. The last one may be half written: a file grows by its pages.
func (a *Audit) skip() error {
	file, err := os.Open(a.file)
	if err != nil {
		return err
	}
	defer file.Close()
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	for block := make([]byte, 64<<10); end > 0; {
		begin := max(0, end-int64(len(block)))
		n, err := file.ReadAt(block[:end-begin], begin)
		if err != nil {
			return err
		}
		if i := bytes.LastIndexByte(block[:n], '\n'); i >= 0 {
			a.offset = begin + int64(i) + 1
			return nil
		}
		end = begin
	}
	return nil
}

func (a *Audit) read(tb testing.TB) []byte {
	tb.Helper()
	file, err := os.Open(a.file)
	if err != nil {
		tb.Fatalf("read the audit log: %v", err)
	}
	defer file.Close()
	if _, err := file.Seek(a.offset, io.SeekStart); err != nil {
		tb.Fatalf("read the audit log: %v", err)
	}
	data, err := io.ReadAll(file)
	if err != nil {
		tb.Fatalf("read the audit log: %v", err)
	}
	return data
}
