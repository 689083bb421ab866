// What the pages say, in two languages.
const SAID = {
  skip: ["Skip to the content", "跳到内容"],
  regions: ["Regions", "区域"], tables: ["Tables", "表"], runs: ["Runs", "运行"], events: ["Events", "事件"], ingest: ["Ingest", "接入"], inspector: ["Inspector", "检查器"], runBook: ["Run book", "运维手册"],
  loading: ["Loading…", "加载中…"], unknown: ["unknown", "未知"], never: ["never", "从未"], none: ["none", "无"], all: ["all", "全部"],
  thisRegion: ["this region", "本区域"], noAnswer: ["no answer", "无响应"], dark: ["dark", "无法访问"], needsYou: ["needs a person", "需要处理"], someHeld: ["tables held", "有表被暂停"], well: ["well", "正常"], notStarted: ["not started", "尚未启动"],
  atMost: ["at most ", "最多 "], lagNow: ["lag now", "当前延迟"], lagDay: ["How late new versions were over the last day, at most {most}", "最近一天新版本的延迟,最多 {most}"], lagDayNone: ["No commit in the last day", "最近一天没有提交"],
  delay: ["delay", "延迟"], hour: ["hour", "一小时"], day: ["day", "一天"], week: ["week", "一周"], most: ["most", "最大"], versions: ["versions", "版本数"], delaysSince: ["Delays since {since}", "自 {since} 起的延迟"], delaysUnknown: ["How late new versions are is unknown:", "新版本的延迟未知:"],
  objective: ["{share} of {tables} within {lag}", "{tables} 的 {share} 在 {lag} 内"], budgetLeft: ["{left} of the week's budget left", "本周预算剩余 {left}"], budgetGone: ["the week's budget is exceeded", "本周预算已超出"], burning: ["burning too fast", "消耗过快"],
  neverSynced: ["{region} has never synced: resume its DAG sterna_sync, or run sterna sync --region {region}", "{region} 从未同步:请恢复其 DAG sterna_sync,或运行 sterna sync --region {region}"], dayDelays: ["last day:", "最近一天:"],
  watermark: ["watermark", "水位"], seeding: ["being seeded", "正在初始化"], mainAt: ["main at", "main 位于"], primary: ["primary", "主区域"], sharedCatalog: ["one shared catalog", "共享目录"], reign: ["{primary}, term {epoch}", "{primary},纪元 {epoch}"],
  lastCommit: ["last commit", "最近提交"], lastRun: ["last run", "最近运行"], connection: ["connection", "连接"], connected: ["reaches the primary", "可访问主区域"], cutOff: ["cut off", "已断开"], seenFrom: ["seen from", "观察自"],
  evidence: ["evidence", "运行记录"], garbage: ["garbage", "垃圾"], notCounted: ["not counted yet", "尚未统计"], transit: ["In transit", "传输中"], transitLeft: ["{tables} tables, {bytes} left", "{tables} 张表,剩余 {bytes}"],
  nothingHeld: ["No table is held.", "没有被暂停的表。"], heldTables: ["Held tables: {count}", "被暂停的表:{count}"], since: ["since", "自"], reason: ["reason", "原因"], file: ["file", "文件"], remedy: ["remedy", "处理办法"], entry: ["run book", "运维手册"], more: ["and {count} more", "另有 {count} 张"], notLookedAt: ["Not looked at:", "未查看:"],
  region: ["Region", "区域"], searchTables: ["Search tables", "搜索表"], noRunBook: ["The run book is docs/operations.md in sterna's repository: see its entry {entry}.", "运维手册见 sterna 仓库的 docs/operations.md:{entry}。"], whatNext: ["What would the next sync do?", "下一次同步会做什么?"], planning: ["Planning…", "正在规划…"], planIdle: ["The next sync has nothing to do.", "下一次同步无事可做。"],
  planSays: ["The next sync changes {keys} keys and copies {files} files, {bytes}. Held: {held}.", "下一次同步将更改 {keys} 个键,复制 {files} 个文件,{bytes}。暂停:{held}。"],
  planCopies: ["Of these, {bytes} from copies in {region}.", "其中 {bytes} 来自 {region} 的副本。"], planSaves: ["Estimated to save {saved} of {cost}.", "预计节省 {saved}(原费用 {cost})。"],
  noneFound: ["No table has that in its name.", "没有匹配的表。"], noTables: ["No table yet.", "还没有表。"], table: ["Table", "表"], state: ["State", "状态"], snapshot: ["Snapshot", "快照"], lag: ["Lag", "延迟"], files: ["Files", "文件数"], bytes: ["Bytes", "大小"], next: ["Next sync", "下一次同步"], why: ["Why?", "为什么?"],
  aboutTable: ["Events, pins", "事件、保留"], show: ["Show", "显示"], noEvents: ["No event in the last week.", "最近一周没有事件。"], noHolds: ["No pin keeps it.", "没有保留。"], heldUntil: ["Snapshot {snapshot} is pinned until {until}", "快照 {snapshot} 保留至 {until}"],
  state_served: ["served", "已同步"], state_behind: ["behind", "落后"], state_held: ["held", "暂停"], state_transit: ["in transit", "传输中"], state_missing: ["not here yet", "尚未到达"], state_gone: ["gone from main", "已从 main 删除"],
  planDrop: ["drops it", "删除"], planPut: ["copies {files} files, {bytes}; localizes {localize}", "复制 {files} 个文件,{bytes};本地化 {localize} 个"], nextHeld: ["tries it again", "再次尝试"], nextTransit: ["leaves it to the large lane", "由大通道处理"], nextPut: ["brings it", "同步"], nextNothing: ["nothing", "无"],
  restoredAt: ["Restored on {at}", "已于 {at} 恢复"], restoredFrom: ["As main had it on {time}, commit {commit}", "恢复到 main 在 {time} 的状态,提交 {commit}"], restoredBy: ["By commit {commit} on main", "由 main 上的提交 {commit} 恢复"], rewound: ["{count} channels stopped", "{count} 个通道已停止"],
  before: ["Previous", "上一页"], after: ["Next", "下一页"], pageOf: ["Page {page} of {pages}, {total} tables", "第 {page} / {pages} 页,共 {total} 张表"],
  actions: ["Actions", "操作"], scheduled: ["scheduled", "按计划运行"], paused: ["paused", "已暂停"], runNow: ["Run now", "立即运行"], dryRun: ["Dry run", "试运行"], pause: ["Pause", "暂停"], resume: ["Resume", "恢复"],
  runNowMeans: ["Airflow starts one more run of this DAG, with its own parameters.", "Airflow 将以默认参数再启动一次该 DAG 的运行。"], dryRunMeans: ["Airflow starts a run that changes nothing: its log says what would be done.", "Airflow 将启动一次不做任何更改的运行:日志说明将要执行的操作。"],
  pauseMeans: ["No more runs begin until somebody resumes it. What a sync would bring is missing here, and the lag grows.", "在恢复之前不再开始新的运行。同步内容将缺失,延迟会增大。"], pauseTableMeans: ["The table stays as it is in this region, whatever main does, until somebody resumes it. What was committed together with it waits, too.", "在恢复之前,无论 main 如何变化,该表在本区域保持不变。与其一同提交的内容也会等待。"],
  resumeTableMeans: ["The next sync publishes what main has.", "下一次同步将发布 main 的内容。"], pauseReason: ["Reason", "原因"], resumeMeans: ["Runs begin again by its schedule.", "将按计划重新开始运行。"], pausedRunsWait: ["Paused: resume it first", "已暂停:请先恢复"],
  nothingRuns: ["Nothing runs now.", "当前没有运行。"], noRuns: ["No run yet.", "还没有运行。"], lastRuns: ["Last runs", "最近的运行"], begun: ["Begun", "开始"], took: ["Took", "用时"], copied: ["Copied", "已复制"], throughput: ["Throughput", "吞吐量"], timeLeft: ["Time left", "剩余时间"], dag: ["DAG", "DAG"], run: ["Run", "运行"], bytesLeft: ["Bytes left", "剩余"], beingCopied: ["being copied", "正在复制"], noLane: ["no bulk run is copying it", "大通道未运行"],
  live: ["Live", "实时"], connect: ["Connect", "连接"], disconnect: ["Disconnect", "断开"], waiting: ["Waiting for data...", "Waiting for data..."], streamRefused: ["The stream was refused, or the session is over.", "事件流被拒绝,或会话已结束。"], lastTable: ["Last table", "最近的表"], at: ["At", "时间"], what: ["What", "内容"],
  outlets: ["Sinks", "出口"], outlet: ["Sink", "出口"], kind: ["Kind", "类型"], position: ["Position", "位置"], behind: ["Behind", "落后"], age: ["Age", "时长"], dead: ["Dead letters", "死信"], notInFile: ["not in the services file", "不在服务文件中"], notBegun: ["not begun", "未开始"], notKept: ["the log has it no more", "日志中已不存在"], eventsBehind: ["{events} events", "{events} 个事件"],
  replayMany: ["{count}: replay…", "{count}:重发…"], replayTitle: ["Replay the dead letters of {name}", "重发 {name} 的死信"], replaySure: ["{count} events are sent to the receiver again, the oldest first. This can't be undone.", "将按时间顺序重新发送 {count} 个事件。此操作无法撤销。"], replay: ["Send again", "重新发送"], cancel: ["Close", "关闭"], sending: ["Sending…", "正在发送…"], replayed: ["Sent: {sent}, left: {left}.", "已发送:{sent},剩余:{left}。"],
  noIngest: ["The services file has no ingestion for this region.", "服务文件中没有本区域的接入配置。"], nothingCame: ["Nothing came in yet.", "尚无数据接入。"], tenants: ["Tenants", "租户"], tenant: ["Tenant", "租户"], backlog: ["Backlog", "积压"], lastDay: ["Last day", "最近一天"], drops: ["Uploads", "上传"], batches: ["Batches", "批次"], oldest: ["Oldest", "最早"], nothingWaits: ["Nothing waits.", "没有等待的数据。"], noBatches: ["No batch.", "没有批次。"], closed: ["Closed", "关闭时间"], batch: ["Batch", "批次"], rows: ["Rows", "行数"], commit: ["Commit", "提交"],
  workers: ["Workers", "工作进程"], worker: ["Worker", "工作进程"], lastSign: ["Last sign", "最近信号"], atWork: ["at work", "工作中"], noSign: ["died or hangs: no sign for {time}", "已停止或卡住:{time} 无信号"], noWorker: ["Batches wait, and no worker runs.", "有批次等待,但没有工作进程。"], noWorkers: ["No worker in the last day.", "最近一天没有工作进程。"], notServed: ["Batches on main that the replica does not serve yet", "已在 main 上但副本尚未提供的批次"],
  count_buffered: ["uploads without a batch", "未成批的上传"], count_ready: ["batches ready", "就绪批次"], count_delayed: ["batches tried again later", "稍后重试的批次"], count_claimed: ["batches claimed by a worker", "处理中的批次"], count_abandoned: ["batches left by a worker without a sign", "被无信号进程留下的批次"], count_rejected: ["batches rejected", "被拒绝的批次"], count_dead_rows: ["rows in the dead letters", "死信行数"],
  whereIs: ["Where is my upload?", "我的上传在哪里?"], uploadHint: ["Id of a receipt or batch, or a channel", "回执或批次的 ID,或通道"], find: ["Find", "查找"], notFound: ["Nothing here has that id.", "没有找到该 ID。"], accepted: ["Accepted", "接收时间"], noBatchYet: ["none yet", "尚无"], acceptedTo: ["Accepted up to", "已接收至"], settledTo: ["Settled up to", "已完成至"],
  inspectorTitle: ["Live feature inspector", "实时特征检查器"], userId: ["User ID", "用户 ID"], featureView: ["View", "视图"], typeUser: ["Enter a user ID", "输入用户 ID"], look: ["Look up", "查询"], lookupFailed: ["Lookup failed!", "查询失败!"], unknownError: ["Unknown error", "未知错误"], featureAge: ["User's age (age)", "用户年龄 (age)"], city: ["City (city)", "所在城市 (city)"], updated: ["Last update", "最后更新时间"],
};
const KEPT = "sterna-language";
let chosen = first();

export function t(name, values = {}) {
  const said = SAID[name]?.[chosen === "zh" ? 1 : 0] ?? name;
  return said.replace(/\{(\w+)\}/g, (_, key) => String(values[key] ?? ""));
}

export function language() {
  return chosen;
}

export function locale() {
  return chosen === "zh" ? "zh-CN" : undefined;
}

export function setLanguage(name) {
  chosen = name;
  try {
    localStorage.setItem(KEPT, name);
  } catch {
    // it holds for this page alone
  }
}

// What was chosen here, else what was chosen for Airflow's pages, else what the browser prefers.
function first() {
  let name = null;
  try {
    name = localStorage.getItem(KEPT) ?? localStorage.getItem("i18nextLng");
  } catch {
    name = null;
  }
  return (name ?? navigator.language ?? "en").toLowerCase().startsWith("zh") ? "zh" : "en";
}
