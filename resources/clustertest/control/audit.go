// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package control

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// AuditIDHeader of a request is the ID under which the API server logs it.
const AuditIDHeader = "Audit-ID"

// AuditID is that ID of a request that goes through a proxy. It tells when the last byte
// of the request had left the client's socket, whatever happens to it afterwards.
func AuditID(sent time.Time) string {
	return fmt.Sprintf("%s%d-%s", sentPrefix, sent.UnixNano(), rand.Text()[:8])
}

const sentPrefix = "sent-"

// Sent is what AuditID tells; ok is false if the request did not go through a proxy.
func Sent(auditID string) (sent time.Time, ok bool) {
	text, ok := strings.CutPrefix(auditID, sentPrefix)
	text, _, _ = strings.Cut(text, "-")
	ns, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(0, ns), ok && err == nil
}
